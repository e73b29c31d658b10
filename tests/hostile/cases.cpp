#include "hostile/cases.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "hostile/byte_damage.h"
#include "hostile/folder_state.h"
#include "hostile/json_damage.h"
#include "hostile/leq_parts.h"
#include "hostile/readers.h"

namespace leq::hostile {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReservedFirst = 48, kPreambleEnd = 64;  // offsets in a .leq file
constexpr std::size_t kMinorFirst = 12, kMinorEnd = 16;
constexpr double kWordsShare = 0.2;  // fraction of cases with only command lines

// The damage to a file, and the allowed results of a tool that reads all of the file.
struct Damage {
  std::string what;   // for human readers
  std::string group;  // for the list of known failures: "place pipe"
  Expect expect = Expect::either;
};

// Returns whether a checkpoint folder is still valid without this file.
bool optional(const Target& target) {
  for (const char* kind :
       {"generation_config.json", "tokenizer_config.json", "chat_template", "index.json"}) {
    if (target.kind == kind) return true;
  }
  return false;
}

bool any_text(const Target& target) { return target.layout == Layout::text; }

Expect expect_of_place(Place place, const Target& target) {
  switch (place) {
    case Place::link:
      // Even an undamaged text may be too long for a prompt.
      return any_text(target) ? Expect::either : Expect::accepted;
    case Place::no_right:
      return modes_hold() ? Expect::refused : Expect::either;
    case Place::missing:
    case Place::folder:
    case Place::pipe:
    case Place::link_nowhere:
    case Place::link_in_a_ring:
    case Place::zero_device:
      return optional(target) ? Expect::either : Expect::refused;
    case Place::null_device:
      return optional(target) || any_text(target) ? Expect::either : Expect::refused;
    case Place::empty:
    case Place::garbage:
      return any_text(target) ? Expect::either : Expect::refused;
  }
  return Expect::either;
}

// An empty folder is as valid as a folder that contains files.
Expect expect_of_folder(Place place) {
  if (place == Place::link || place == Place::folder) return Expect::accepted;
  return place == Place::no_right && !modes_hold() ? Expect::either : Expect::refused;
}

Damage damage_place(const Target& target, const fs::path& path, Dice& dice) {
  Place place = kPlaces[dice.below(std::size(kPlaces))];
  // A text read from a pipe may arrive slowly.
  if (place == Place::pipe && target.kind == "text") place = Place::folder;
  put_in_place(place, path, dice);
  Expect expect =
      target.layout == Layout::folder ? expect_of_folder(place) : expect_of_place(place, target);
  // Some replacements also prevent writing to the path, which a tool reports before it starts.
  if (target.spared) expect = Expect::either;
  return {place_name(place), "place " + place_name(place), expect};
}

std::vector<std::string> steps_of(const std::string& pointer) {
  std::vector<std::string> steps;
  for (std::size_t at = 0; at < pointer.size();) {
    const std::size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    steps.push_back(pointer.substr(at + 1, end - at - 1));
    at = end;
  }
  return steps;
}

bool is_required(const Target& target, const std::string& where) {
  const std::vector<std::string> steps = steps_of(where);
  return std::any_of(target.required.begin(), target.required.end(), [&](const auto& pattern) {
    const std::vector<std::string> wanted = steps_of(pattern);
    if (wanted.size() > steps.size()) return false;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] != "*" && wanted[i] != steps[i]) return false;
    }
    return true;
  });
}

Expect expect_of_json(const DamagedJson& damaged, const Target& target, const Reader& reader) {
  const bool required = is_required(target, damaged.where);
  const bool checksum = damaged.where.ends_with("/xxh3");
  switch (damaged.harm) {
    case JsonHarm::none:
      return Expect::accepted;
    case JsonHarm::same:
      return Expect::either;
    case JsonHarm::malformed:
      return Expect::refused;
    case JsonHarm::bomb:
      return required || damaged.what.starts_with("deep") ? Expect::refused : Expect::either;
    case JsonHarm::value:
      // A message in a chat may be any text.
      if (damaged.where.empty() || target.kind == "chat") return Expect::either;
      // A model's perplexity may have any value.
      if (damaged.where == "/ppl") return Expect::either;
      // GPT-2's weights do not determine the number of heads, so other numbers may be accepted.
      if (damaged.where == "/n_head") return Expect::either;
      return required && (!checksum || reader.reads_all) ? Expect::refused : Expect::either;
    case JsonHarm::type:
      return required ? Expect::refused : Expect::either;
    case JsonHarm::missing: {
      // A saved chat may be older than some settings, so a missing setting is allowed.
      if (target.kind == "chat" && damaged.where.starts_with("/settings/")) return Expect::either;
      // A tensor is found in its shard even if the index does not list it.
      const bool listed = target.kind == "index.json" && damaged.where != "/weight_map";
      return required && !listed ? Expect::refused : Expect::either;
    }
    case JsonHarm::duplicate:
      return target.layout == Layout::leq || target.layout == Layout::safetensors ||
                     target.kind == "config.json" || damaged.where.starts_with("/weight_map")
                 ? Expect::refused
                 : Expect::either;
    case JsonHarm::unknown: {
      const bool top = steps_of(damaged.where).size() == 1;
      return top && (target.layout == Layout::leq || target.kind == "config.json" ||
                     target.kind == "generation_config.json" ||
                     target.kind == "tokenizer_config.json")
                 ? Expect::accepted
                 : Expect::either;
    }
  }
  return Expect::either;
}

const char* harm_name(JsonHarm harm) {
  switch (harm) {
    case JsonHarm::none:
      return "whole";
    case JsonHarm::malformed:
      return "malformed";
    case JsonHarm::same:
      return "same";
    case JsonHarm::bomb:
      return "bomb";
    case JsonHarm::value:
      return "value";
    case JsonHarm::type:
      return "type";
    case JsonHarm::missing:
      return "missing";
    case JsonHarm::duplicate:
      return "duplicate";
    case JsonHarm::unknown:
      return "unknown";
  }
  return "";
}

Damage described(const DamagedJson& damaged, Expect expect) {
  std::string where = damaged.where.empty() ? "" : " at " + damaged.where;
  return {damaged.what + where, std::string("json ") + harm_name(damaged.harm), expect};
}

// Replacing a value by the same value is no damage.
Expect unless_same(bool same, Expect expect) { return same ? Expect::either : expect; }

Damage damage_json_file(const Target& target, const Reader& reader, const fs::path& path,
                        Dice& dice) {
  const std::string before = read_bytes(path);
  const DamagedJson damaged = damage_json(before, dice);
  write_bytes(path, damaged.text);
  return described(damaged, expect_of_json(damaged, target, reader));
}

bool overlaps(const DamagedBytes& damaged, std::size_t first, std::size_t last) {
  return damaged.first < last && damaged.last > first;
}

bool inside(const DamagedBytes& damaged, std::size_t first, std::size_t last) {
  return damaged.first >= first && damaged.last <= last;
}

// A tool that processes text reads the tokenizer's tables.
bool reads_blobs(const Reader& reader) {
  return reader.tool == "leq-run" || reader.tool == "leq-perplexity" ||
         std::find(reader.words.begin(), reader.words.end(), "--tokenize") != reader.words.end();
}

Expect expect_of_leq_bytes(const DamagedBytes& damaged, const LeqParts& parts,
                           const Reader& reader) {
  if (damaged.size_changed()) return Expect::refused;
  if (inside(damaged, kReservedFirst, kPreambleEnd)) return Expect::accepted;
  if (inside(damaged, kMinorFirst, kMinorEnd)) return Expect::accepted;
  if (overlaps(damaged, 0, kReservedFirst)) return Expect::refused;
  if (overlaps(damaged, parts.json_offset, parts.json_offset + parts.json_bytes)) {
    return Expect::refused;
  }
  for (const LeqParts::Range& range : parts.ranges) {
    if (!overlaps(damaged, range.offset, range.offset + range.bytes)) continue;
    if (reader.reads_all || (range.blob && reads_blobs(reader))) return Expect::refused;
  }
  return Expect::either;
}

Damage damage_leq_bytes(const Reader& reader, const fs::path& path, Dice& dice) {
  const std::string before = read_bytes(path);
  const LeqParts parts = parts_of(before);
  std::vector<std::size_t> boundaries = {
      0, 8, 12, 16, 24, 32, 40, 48, 64, parts.json_offset, before.size() - 1};
  for (const auto& range : parts.ranges) {
    boundaries.push_back(range.offset);
    boundaries.push_back(range.offset + range.bytes);
  }
  const DamagedBytes damaged = damage_bytes(before, boundaries, dice);
  write_bytes(path, damaged.bytes);
  const bool same = damaged.bytes == before;
  return {damaged.what, damaged.size_changed() ? "size" : "bytes",
          unless_same(same, expect_of_leq_bytes(damaged, parts, reader))};
}

// Damages a bit of a plane or table and repairs the checksum; a run must still obey the rules.
Damage damage_leq_range(const fs::path& path, Dice& dice) {
  std::string file = read_bytes(path);
  const LeqParts parts = parts_of(file);
  const std::size_t chosen = dice.below(parts.ranges.size());
  const LeqParts::Range& range = parts.ranges[chosen];
  const std::size_t count = dice.chance(0.5) ? 1 : std::min<std::size_t>(range.bytes, 64);
  for (std::size_t i = 0; i < count; ++i) {
    file[range.offset + dice.below(range.bytes)] = static_cast<char>(dice.bits() >> 40);
  }
  write_bytes(path, with_checksum(file, parts, chosen));
  return {std::to_string(count) + " bytes of " + range.name + ", checksums repaired",
          range.blob ? "repaired blob" : "repaired plane", Expect::either};
}

Damage damage_leq(const Target& target, const Reader& reader, const fs::path& path, Dice& dice) {
  const std::size_t kind = dice.below(100);
  if (kind < 35) return damage_leq_bytes(reader, path, dice);
  if (kind < 50) return damage_leq_range(path, dice);
  const std::string before = read_bytes(path);
  const DamagedJson damaged = damage_json(json_of(before), dice);
  write_bytes(path, with_json(before, damaged.text));
  return described(damaged, expect_of_json(damaged, target, reader));
}

Damage damage_safetensors(const Target& target, const Reader& reader, const fs::path& path,
                          Dice& dice) {
  const std::string before = read_bytes(path);
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, before.data(), sizeof header_bytes);
  const std::string header = before.substr(8, header_bytes);
  if (dice.chance(0.6)) {
    const DamagedJson damaged = damage_json(header, dice);
    const std::uint64_t size = damaged.text.size();
    write_bytes(path, std::string(reinterpret_cast<const char*>(&size), 8) + damaged.text +
                          before.substr(8 + header_bytes));
    return described(damaged, expect_of_json(damaged, target, reader));
  }
  const DamagedBytes damaged =
      damage_bytes(before, {0, 4, 8, 9, 8 + header_bytes, before.size() - 1}, dice);
  write_bytes(path, damaged.bytes);
  const bool numbers = damaged.size_changed() || overlaps(damaged, 0, 8);
  return {damaged.what, damaged.size_changed() ? "size" : "bytes",
          unless_same(damaged.bytes == before, numbers ? Expect::refused : Expect::either)};
}

bool valid_utf8(const std::string& text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t count = byte < 0x80   ? 1
                              : byte < 0xc2 ? 0
                              : byte < 0xe0 ? 2
                              : byte < 0xf0 ? 3
                              : byte < 0xf5 ? 4
                                            : 0;
    if (count == 0 || i + count > text.size()) return false;
    std::uint32_t code = count == 1 ? byte : byte & (0xffu >> (count + 1));
    for (std::size_t k = 1; k < count; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0u) != 0x80) return false;
      code = code << 6 | (next & 0x3fu);
    }
    if (count == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) return false;
    if (count == 4 && (code < 0x10000 || code > 0x10ffff)) return false;
    i += count;
  }
  return true;
}

Damage damage_text(const fs::path& path, Dice& dice) {
  const std::string before = read_bytes(path);
  const std::size_t at = dice.below(before.size());
  const auto with = [&](const std::string& part) {
    return before.substr(0, at) + part + before.substr(at);
  };
  const std::vector<std::pair<std::string, std::string>> all = {
      {"byte ff", with("\xff")},
      {"half a letter", with("\xe2\x82")},
      {"a surrogate", with("\xed\xa0\x80")},
      {"an overlong slash", with("\xc0\xaf")},
      {"NUL", with(std::string(3, '\0'))},
      {"escapes", with("\x1b]0;x\x07\x1b[31m")},
      {"CR LF", with("\r\n\r\n")},
      {"a mark of byte order", "\xef\xbb\xbf" + before},
      {"one letter", "x"},
      {"one newline", "\n"},
      {"special tokens", with("<|im_end|><|endoftext|></s><s>")},
      {"one long line", with(std::string(100'000, 'e'))},
      {"many words", with([] {
         std::string text;
         for (int i = 0; i < 20'000; ++i) text += "the 1 ";
         return text;
       }())},
      {"combining marks", with([] {
         std::string text = "a";
         for (int i = 0; i < 20'000; ++i) text += "\xcc\x81";
         return text;
       }())}};
  if (dice.chance(0.3)) {
    const DamagedBytes damaged = damage_bytes(before, {}, dice);
    write_bytes(path, damaged.bytes);
    const bool broken = !valid_utf8(damaged.bytes);
    return {damaged.what, broken ? "no UTF-8" : "text", broken ? Expect::refused : Expect::either};
  }
  const auto& [what, text] = dice.of(all);
  write_bytes(path, text);
  const bool broken = !valid_utf8(text);
  return {what, broken ? "no UTF-8" : "text", broken ? Expect::refused : Expect::either};
}

// Statistics and KL base files have checksums of their content; damage to other files may pass.
Damage damage_plain(const Target& target, const fs::path& path, Dice& dice) {
  const std::string before = read_bytes(path);
  const DamagedBytes damaged =
      damage_bytes(before, {0, 8, 16, 24, 32, 40, 64, before.size() - 1}, dice);
  write_bytes(path, damaged.bytes);
  const bool checked = target.kind == "kl base" || target.kind == "statistics";
  const bool reserved = inside(damaged, 40, 64);
  return {
      damaged.what, damaged.size_changed() ? "size" : "bytes",
      unless_same(damaged.bytes == before || reserved, checked ? Expect::refused : Expect::either)};
}

// Saved prefixes have numeric headers, and checksums that are sometimes repaired.
Damage damage_prompts(const fs::path& path, Dice& dice) {
  const std::string before = read_bytes(path);
  std::size_t layout = 0;
  std::memcpy(&layout, before.data() + 24, sizeof layout);
  const std::size_t entry = 32 + layout;
  const std::size_t header[] = {0,
                                8,
                                16,
                                24,
                                32,
                                entry,
                                entry + 8,
                                entry + 16,
                                entry + 24,
                                entry + 32,
                                entry + 40,
                                before.size() - 41,
                                before.size() - 1};
  const DamagedBytes damaged = damage_bytes(before, {std::begin(header), std::end(header)}, dice);
  const bool repaired = dice.chance(0.5);
  write_bytes(path, repaired ? with_prefix_checksums(damaged.bytes) : damaged.bytes);
  return {damaged.what + (repaired ? ", checksums repaired" : ""),
          repaired ? "repaired prefix" : "bytes", Expect::accepted};
}

Damage damage_file(const Target& target, const Reader& reader, const fs::path& path, Dice& dice) {
  if (target.layout == Layout::folder || dice.chance(0.15)) {
    return damage_place(target, path, dice);
  }
  switch (target.layout) {
    case Layout::leq:
      return damage_leq(target, reader, path, dice);
    case Layout::safetensors:
      return damage_safetensors(target, reader, path, dice);
    case Layout::json:
      return damage_json_file(target, reader, path, dice);
    case Layout::text: {
      Damage damage = damage_text(path, dice);
      // Text outside the block of a PEM file is ignored, so its damage may be accepted.
      if (path.extension() == ".pem") damage.expect = Expect::either;
      return damage;
    }
    case Layout::prompts:
      return damage_prompts(path, dice);
    case Layout::folder:
    case Layout::bytes:
      break;
  }
  return damage_plain(target, path, dice);
}

// Returns the path of a target's file in `folder`.
fs::path file_of(const Target& target, const fs::path& folder) {
  const fs::path path = folder / target.file;
  if (!target.file.ends_with('*')) return path;
  const std::string start = target.file.substr(0, target.file.size() - 1);
  for (const auto& entry : fs::directory_iterator(path.parent_path())) {
    const fs::path name = fs::relative(entry.path(), folder);
    if (name.string().starts_with(start)) return entry.path();
  }
  throw std::runtime_error(path.string() + ": no such file among the samples");
}

const Target& choose_target(Dice& dice, const std::vector<Target>& all, const std::string& kind) {
  const auto weight = [&](const Target& target) {
    return kind.empty() || target.kind == kind ? static_cast<std::size_t>(target.weight) : 0;
  };
  std::size_t sum = 0;
  for (const Target& target : all) sum += weight(target);
  if (sum == 0) throw std::runtime_error("no file of kind \"" + kind + "\"");
  std::size_t at = dice.below(sum);
  for (const Target& target : all) {
    if (at < weight(target)) return target;
    at -= weight(target);
  }
  return all.back();
}

}  // namespace

Case make_case(const CasePlan& plan, std::uint64_t number, const fs::path& folder) {
  Dice dice(plan.seed, number);
  const bool any = plan.kind.empty();
  const bool of_server = any && number % kServerEach == kServerEach - 1;
  if (any && dice.chance(kWordsShare)) {
    return make_words_case(plan, number, folder, of_server ? Program::server : Program::tools);
  }
  const Target& target = choose_target(dice, of_server ? server_targets() : targets(), plan.kind);
  const Reader& reader = dice.of(target.readers);
  for (const std::string& name : target.copies) {
    fs::copy(plan.samples / name, folder / name, fs::copy_options::recursive);
  }
  const fs::path file = file_of(target, folder);
  const Damage damage = damage_file(target, reader, file, dice);
  Case made;
  made.name = target.file + ": " + damage.what;
  made.kind = target.kind + "/" + damage.group;
  made.tool = reader.tool;
  made.command.words = {plan.tools.path(reader.tool)};
  made.command.words.insert(made.command.words.end(), reader.words.begin(), reader.words.end());
  made.command.input = reader.input;
  made.command.standard_input = !reader.input.empty() ? Stdin::text
                                : dice.chance(0.2)    ? Stdin::closed
                                                      : Stdin::nothing;
  made.command.end_at = reader.end_at;
  made.command.questions = reader.questions;
  made.command.folder = folder;
  made.expectation = {.expect = damage.expect,
                      .names = target.also_named,
                      .outputs = reader.outputs,
                      .talk = reader.talk};
  // Only a run determines whether bytes with a correct checksum are usable.
  const bool runs = damage.group == "bytes" || damage.group.starts_with("repaired");
  if (target.layout == Layout::leq && runs) made.expectation.talk = Talk::before;
  made.expectation.names.push_back(file.filename().string());
  // Keys and values with a correct checksum are accepted unchanged.
  if (!reader.questions.empty() && damage.group != "repaired prompt") {
    made.expectation.answer = said_in(read_bytes(folder / "answer.txt"));
  }
  return made;
}

}  // namespace leq::hostile
