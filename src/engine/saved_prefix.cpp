#include "engine/saved_prefix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "engine/engine.h"
#include "format/leq_layout.h"

namespace leq {
namespace {

using Magic = std::array<char, 8>;
constexpr Magic kMagic = {'L', 'E', 'Q', 'P', 'F', 'X', '0', '1'};
constexpr Magic kOldMagic = {'L', 'E', 'Q', 'P', 'R', 'M', '0', '1'};
constexpr std::uint64_t kMaxLayoutBytes = 1000;

struct Header {
  Magic magic = kMagic;
  std::uint64_t xxh3 = 0;
  std::uint64_t model = 0;
  std::uint64_t layout_bytes = 0;
};
static_assert(sizeof(Header) == 32);
constexpr std::size_t kHeaderUnchecked = offsetof(Header, model);  // not covered by the checksum

struct EntryHeader {
  std::uint64_t xxh3 = 0;
  std::uint64_t tokens = 0, kv_bytes = 0;
  std::uint64_t states = 0, state_bytes = 0;
};
static_assert(sizeof(EntryHeader) == 40);
constexpr std::size_t kEntryUnchecked = offsetof(EntryHeader, tokens);

template <class T>
void append(std::vector<std::byte>& bytes, std::span<const T> list) {
  const auto more = std::as_bytes(list);
  bytes.insert(bytes.end(), more.begin(), more.end());
}

// Writes the checksum of the bytes from `checked` on.
void seal(std::vector<std::byte>& bytes, std::size_t at, std::size_t checked) {
  const std::uint64_t sum = checksum(std::span(bytes).subspan(checked));
  std::memcpy(bytes.data() + at, &sum, sizeof sum);
}

void require_sum(std::uint64_t expected, std::span<const std::byte> bytes,
                 std::string_view source) {
  const std::uint64_t found = checksum(bytes);
  require(found == expected, source, ": checksum: expected ", checksum_text(expected), ", found ",
          checksum_text(found), "; the file is damaged, remove it");
}

struct EntryParts {
  EntryHeader header;
  std::span<const std::byte> tokens, positions, kv, states;
};

EntryParts read_entry(ByteReader& reader, std::string_view source) {
  EntryParts parts;
  const auto header = parts.header = reader.read<EntryHeader>("the header of a saved prefix");
  require((header.states > 0) == (header.state_bytes > 0), source, ": ", header.states,
          " states of ", header.state_bytes, " bytes; the file is damaged, remove it");
  parts.tokens = reader.take(checked_multiply(header.tokens, sizeof(Token), source), "the tokens");
  parts.positions = reader.take(checked_multiply(header.states, sizeof(std::int64_t), source),
                                "positions of states");
  parts.kv = reader.take(header.kv_bytes, "keys and values");
  parts.states = reader.take(checked_multiply(header.states, header.state_bytes, source), "states");
  return parts;
}

}  // namespace

PrefixOwner prefix_owner(const Model& model, Session& session) {
  std::string layout = session.cache().form();
  if (const FixedStates* fixed = session.state().fixed()) {
    layout += ", states of " + std::to_string(fixed->whole_bytes()) + " bytes";
  }
  // Keys depend on a scaling that the context of the run has fixed.
  const std::string rope = session.transformer().rope_note();
  if (!rope.empty()) layout += ", " + rope;
  return {model.file().fingerprint(), std::move(layout)};
}

std::vector<std::byte> prefix_header_bytes(const PrefixOwner& owner) {
  const Header header = {.model = owner.model, .layout_bytes = owner.layout.size()};
  std::vector<std::byte> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  append(bytes, as_bytes(owner.layout));
  seal(bytes, offsetof(Header, xxh3), kHeaderUnchecked);
  return bytes;
}

std::vector<std::byte> prefix_entry_bytes(const SavedPrefix& prefix) {
  const std::size_t state_bytes = prefix.states.empty() ? 0 : prefix.states[0].bytes.size();
  const EntryHeader header = {0, prefix.tokens.size(), prefix.kv.size(), prefix.states.size(),
                              state_bytes};
  std::vector<std::byte> bytes(sizeof header);
  bytes.reserve(sizeof header + prefix.tokens.size() * sizeof(Token) + prefix.kv.size() +
                prefix.states.size() * (sizeof(std::int64_t) + state_bytes));
  std::memcpy(bytes.data(), &header, sizeof header);
  append(bytes, std::span(prefix.tokens));
  for (const SavedState& state : prefix.states) append(bytes, std::span(&state.position, 1));
  append(bytes, std::span(prefix.kv));
  for (const SavedState& state : prefix.states) {
    ensure(state.bytes.size() == state_bytes, "saved states of different sizes");
    append(bytes, std::span(state.bytes));
  }
  seal(bytes, 0, kEntryUnchecked);
  return bytes;
}

PrefixReader::PrefixReader(std::span<const std::byte> bytes, std::string_view source)
    : source_(source) {
  ByteReader reader(bytes, source_);
  const auto magic = reader.read<Magic>("the header of saved prefixes");
  is_old_ = magic == kOldMagic;
  if (is_old_) return;
  require(magic == kMagic, source_,
          ": expected saved prefixes, but it does not begin with LEQPFX01; name another file");
  Header header;
  const auto rest = reader.take(sizeof header - sizeof magic, "the header of saved prefixes");
  std::memcpy(&header.xxh3, rest.data(), rest.size());
  require(header.layout_bytes <= kMaxLayoutBytes, source_, ": a layout of ", header.layout_bytes,
          " bytes; the file is damaged, remove it");
  owner_ = {header.model, std::string(as_text(reader.take(header.layout_bytes, "the layout")))};
  require_sum(header.xxh3, bytes.first(reader.offset()).subspan(kHeaderUnchecked), source_);
  for (;;) {
    const std::size_t first = reader.offset();
    const EntryParts parts = read_entry(reader, source_);
    const auto entry = bytes.subspan(first, reader.offset() - first);
    if (parts.header.tokens > 0) {
      entries_.push_back(entry);
      continue;
    }
    require_sum(parts.header.xxh3, entry.subspan(kEntryUnchecked), source_);
    require(reader.left() == 0, source_, ": ", reader.left(), " bytes after its end at offset ",
            reader.offset(), "; the file is damaged, remove it");
    require(entry.size() == sizeof(EntryHeader), source_, ": ", entry.size(),
            " bytes at its end; the file is damaged, remove it");
    return;
  }
}

std::string PrefixReader::reason_against(const PrefixOwner& owner) const {
  if (is_old_) return "it was written by an older version of leq";
  if (owner_.model != owner.model) return "it was written with another model";
  if (owner_.layout == owner.layout) return "";
  return "its keys and values are of another device, number of ranks, KV type or context (" +
         printable(owner_.layout, kMaxLayoutBytes) + "; this run: " + owner.layout + ")";
}

SavedPrefix PrefixReader::read(std::size_t index) const {
  const std::span<const std::byte> entry = entries_.at(index);
  ByteReader reader(entry, source_);
  const EntryParts parts = read_entry(reader, source_);
  require_sum(parts.header.xxh3, entry.subspan(kEntryUnchecked), source_);
  SavedPrefix prefix;
  prefix.tokens.resize(static_cast<std::size_t>(parts.header.tokens));
  std::memcpy(prefix.tokens.data(), parts.tokens.data(), parts.tokens.size());
  prefix.kv.assign(parts.kv.begin(), parts.kv.end());
  std::int64_t before = 0;
  for (std::size_t i = 0; i < parts.header.states; ++i) {
    SavedState& state = prefix.states.emplace_back();
    std::memcpy(&state.position, parts.positions.data() + i * sizeof before, sizeof before);
    require(state.position > before && state.position < std::ssize(prefix.tokens), source_,
            ": a state after ", state.position, " of ", prefix.tokens.size(),
            " tokens; the file is damaged, remove it");
    before = state.position;
    const auto bytes = parts.states.subspan(i * parts.header.state_bytes, parts.header.state_bytes);
    state.bytes.assign(bytes.begin(), bytes.end());
  }
  return prefix;
}

PrefixWriter::PrefixWriter(const std::filesystem::path& path, const PrefixOwner& owner)
    : file_(path) {
  file_.append(prefix_header_bytes(owner));
}

void PrefixWriter::commit() {
  add({});
  file_.commit();
}

// States at positions that an earlier text shares are written once.
KeptTexts write_kept_texts(const std::filesystem::path& path, Engine& engine,
                           const PrefixOwner& owner) {
  KeptTexts kept;
  PrefixWriter file(path, owner);
  std::int64_t pages = 0;
  std::vector<SavedPrefix> written;  // tokens and positions
  for (const std::vector<Token>& text : engine.prefixes().texts()) {
    pages += pages_for(std::ssize(text));
    if (pages > engine.pages()) break;
    SavedPrefix prefix = engine.save_prefix(text);
    if (prefix.tokens.empty()) continue;
    for (const SavedPrefix& other : written) {
      const auto alike =
          std::ranges::mismatch(other.tokens, prefix.tokens).in1 - other.tokens.begin();
      std::erase_if(prefix.states, [&](const SavedState& state) {
        return state.position <= alike &&
               std::ranges::any_of(other.states, [&](const SavedState& known) {
                 return known.position == state.position;
               });
      });
    }
    file.add(prefix);
    ++kept.texts;
    kept.tokens += std::ssize(prefix.tokens);
    prefix.kv.clear();
    for (SavedState& state : prefix.states) state.bytes.clear();
    written.push_back(std::move(prefix));
  }
  if (kept.texts > 0) {
    file.commit();
  } else {
    std::error_code error;  // ignored: the file need not exist
    std::filesystem::remove(path, error);
  }
  return kept;
}

// Loads the texts in reverse order, so that the least recently used one is also evicted first.
KeptTexts read_kept_texts(const std::filesystem::path& path, Engine& engine,
                          const PrefixOwner& owner) {
  KeptTexts kept;
  if (!file_exists(path)) return kept;
  const PrefixFile file(path);
  const std::string reason = file->reason_against(owner);
  require(reason.empty(), printable(path.string()), ": ", reason);
  for (std::size_t i = file->size(); i-- > 0;) {
    const SavedPrefix prefix = file->read(i);
    if (!engine.load_prefix(prefix, printable(path.string()))) continue;
    ++kept.texts;
    kept.tokens += std::ssize(prefix.tokens);
  }
  return kept;
}

}  // namespace leq
