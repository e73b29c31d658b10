#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "convert/tokenizer_parts.h"
#include "export/tokenizer_files.h"

namespace leq {
namespace {

constexpr std::string_view kSpace = " ";

// GPT-2's printable alphabet: bytes that are printable in Latin-1 map to themselves, other bytes to
// U+0100 and up.
std::array<std::string, 256> printable_alphabet() {
  std::array<std::string, 256> alphabet;
  unsigned next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool plain = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const unsigned code = plain ? byte : next++;
    std::string& text = alphabet[byte];
    if (code < 0x80) {
      text = static_cast<char>(code);
    } else {
      text += static_cast<char>(0xc0 | code >> 6);
      text += static_cast<char>(0x80 | (code & 0x3f));
    }
  }
  return alphabet;
}

std::string spelled_bytes(std::string_view bytes) {
  static const std::array<std::string, 256> alphabet = printable_alphabet();
  std::string out;
  for (const char byte : bytes) out += alphabet[static_cast<unsigned char>(byte)];
  return out;
}

// The spelling of a piece in the vocabulary; added tokens are spelled unchanged.
std::string spelled(const TokenizerTables& tables, std::size_t id) {
  const std::string_view text = tables.pieces.text(id);
  const bool added =
      tables.types[id] == TokenType::control || tables.types[id] == TokenType::user_defined;
  if (tables.rules.kind != TokenizerKind::byte_bpe || added) return std::string(text);
  return spelled_bytes(text);
}

Json normalizer_json(const Normalizer& step) {
  switch (step.kind) {
    case Normalizer::Kind::nfc:
      return {{"type", "NFC"}};
    case Normalizer::Kind::prepend:
      return {{"type", "Prepend"}, {"prepend", step.content}};
    case Normalizer::Kind::replace:
      return {{"type", "Replace"},
              {"pattern", Json::object({{"String", step.pattern}})},
              {"content", step.content}};
    case Normalizer::Kind::collapse_spaces:
      break;
  }
  const Json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  const Json join = {
      {"type", "Replace"}, {"pattern", Json::object({{"Regex", " {2,}"}})}, {"content", kSpace}};
  return {{"type", "Sequence"}, {"normalizers", Json::array({strip, join})}};
}

const char* behavior_name(PreTokenizer::Behavior behavior) {
  switch (behavior) {
    case PreTokenizer::Behavior::isolated:
      return "Isolated";
    case PreTokenizer::Behavior::removed:
      return "Removed";
    case PreTokenizer::Behavior::contiguous:
      return "Contiguous";
    case PreTokenizer::Behavior::merged_with_previous:
      return "MergedWithPrevious";
    case PreTokenizer::Behavior::merged_with_next:
      return "MergedWithNext";
  }
  return "Isolated";
}

const char* scheme_of(PrependScheme scheme) {
  if (scheme == PrependScheme::never) return "never";
  return scheme == PrependScheme::first ? "first" : "always";
}

bool is_gpt2_split(const PreTokenizer& step) {
  return step.kind == PreTokenizer::Kind::split && step.pattern == kGpt2Pattern &&
         step.behavior == PreTokenizer::Behavior::isolated && !step.invert;
}

Json byte_level(bool prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", prefix_space},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

// Byte-level models end with ByteLevel, which has GPT-2's pattern and the prefix space. With other
// splits that pattern becomes a split step, since onnxruntime-genai would ignore it otherwise.
std::vector<Json> pre_tokenizer_steps(const TokenizerSpec& rules, std::string_view source) {
  std::vector<Json> steps;
  const auto& from = rules.pre_tokenizers;
  bool ended = false;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const PreTokenizer& step = from[i];
    const bool last = i + 1 == from.size();
    if (step.kind == PreTokenizer::Kind::metaspace) {
      steps.push_back({{"type", "Metaspace"},
                       {"replacement", kSpaceMark},
                       {"prepend_scheme", scheme_of(step.prepend)},
                       {"split", step.cut_words}});
    } else if (step.kind == PreTokenizer::Kind::prefix_space) {
      const bool with_split = i + 2 == from.size() && is_gpt2_split(from[i + 1]);
      require(last || with_split, source,
              ": a prefix space before other cuts has no words in tokenizer.json");
      steps.push_back(byte_level(true, with_split));
      return steps;
    } else if (from.size() == 1 && is_gpt2_split(step)) {
      steps.push_back(byte_level(false, true));
      ended = true;
    } else {
      steps.push_back({{"type", "Split"},
                       {"pattern", Json::object({{"Regex", step.pattern}})},
                       {"behavior", behavior_name(step.behavior)},
                       {"invert", step.invert}});
    }
  }
  if (rules.kind == TokenizerKind::byte_bpe && !ended) steps.push_back(byte_level(false, false));
  return steps;
}

Json sequence(const std::vector<Json>& steps, const char* members) {
  if (steps.empty()) return {};
  if (steps.size() == 1) return steps.front();
  return {{"type", "Sequence"}, {members, Json(Json::Array(steps.begin(), steps.end()))}};
}

Json decoder_json(const TokenizerSpec& rules) {
  if (rules.kind == TokenizerKind::byte_bpe) return byte_level(true, true);
  std::vector<Json> steps = {{{"type", "Replace"},
                              {"pattern", Json::object({{"String", kSpaceMark}})},
                              {"content", kSpace}},
                             {{"type", "ByteFallback"}},
                             {{"type", "Fuse"}}};
  if (rules.strip_leading_space) {
    steps.push_back({{"type", "Strip"}, {"content", kSpace}, {"start", 1}, {"stop", 0}});
  }
  return sequence(steps, "decoders");
}

// Merges by rank, without merges of characters that are not pieces, because these never apply.
Json merges_json(const TokenizerTables& tables, std::span<const std::byte> blob) {
  std::vector<MergeSlot> slots(blob.size() / sizeof(MergeSlot));
  std::memcpy(slots.data(), blob.data(), slots.size() * sizeof(MergeSlot));
  const auto pieces = static_cast<std::uint32_t>(tables.size());
  std::erase_if(slots, [&](const MergeSlot& slot) {
    return slot.left >= pieces || slot.right >= pieces || slot.result >= pieces;
  });
  std::ranges::sort(slots, [](const MergeSlot& a, const MergeSlot& b) {
    return std::tie(a.rank, a.left, a.right) < std::tie(b.rank, b.left, b.right);
  });
  Json merges = Json::array();
  for (const MergeSlot& slot : slots) {
    merges.push_back(Json::array({spelled(tables, slot.left), spelled(tables, slot.right)}));
  }
  return merges;
}

Json added_tokens_json(const TokenizerTables& tables) {
  std::vector<AddedToken> added = tables.rules.added;
  std::ranges::sort(added, {}, &AddedToken::id);
  Json list = Json::array();
  for (const AddedToken& token : added) {
    list.push_back({{"id", token.id},
                    {"content", tables.pieces.text(static_cast<std::size_t>(token.id))},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  }
  return list;
}

// Adds BOS and EOS around a text if the tokenizer does.
Json post_processor_json(const TokenizerTables& tables) {
  const TokenizerSpec& rules = tables.rules;
  Json single = Json::array(), pair = Json::array(), special = Json::object();
  const auto add = [&](Token id, bool wanted) {
    if (!wanted || id < 0) return;
    const std::string text(tables.pieces.text(static_cast<std::size_t>(id)));
    const Json part = {{"SpecialToken", Json::object({{"id", text}, {"type_id", 0}})}};
    single.push_back(part);
    pair.push_back(part);
    special[text] = {{"id", text}, {"ids", Json::array({id})}, {"tokens", Json::array({text})}};
  };
  const auto text = [](const char* name) {
    return Json{{"Sequence", Json::object({{"id", name}, {"type_id", 0}})}};
  };
  add(rules.bos, rules.add_bos);
  single.push_back(text("A"));
  pair.push_back(text("A"));
  pair.push_back(text("B"));
  add(rules.eos, rules.add_eos);
  if (special.empty()) return {};
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", special}};
}

Json model_json(const TokenizerTables& tables, std::span<const std::byte> merges) {
  const TokenizerSpec& rules = tables.rules;
  Json vocab = Json::object();
  for (std::size_t id = 0; id < tables.size(); ++id) {
    if (tables.types[id] != TokenType::unused) vocab[spelled(tables, id)] = id;
  }
  Json model = {{"type", "BPE"},
                {"dropout", nullptr},
                {"continuing_subword_prefix", nullptr},
                {"end_of_word_suffix", nullptr},
                {"fuse_unk", rules.fuse_unknown},
                {"byte_fallback", rules.byte_fallback},
                {"ignore_merges", rules.ignore_merges},
                {"vocab", vocab},
                {"merges", merges_json(tables, merges)}};
  model["unk_token"] =
      rules.unknown < 0 ? Json() : Json(spelled(tables, static_cast<std::size_t>(rules.unknown)));
  return model;
}

}  // namespace

Json tokenizer_json(const TokenizerTables& tables, std::span<const std::byte> merges,
                    std::string_view source) {
  const TokenizerSpec& rules = tables.rules;
  require(
      rules.kind != TokenizerKind::unigram, source,
      ": unigram tokenizers are not written as tokenizer.json; copy the checkpoint's own files");
  std::vector<Json> normalizers;
  for (const Normalizer& step : rules.normalizers) normalizers.push_back(normalizer_json(step));
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens_json(tables)},
          {"normalizer", sequence(normalizers, "normalizers")},
          {"pre_tokenizer", sequence(pre_tokenizer_steps(rules, source), "pretokenizers")},
          {"post_processor", post_processor_json(tables)},
          {"decoder", decoder_json(rules)},
          {"model", model_json(tables, merges)}};
}

}  // namespace leq
