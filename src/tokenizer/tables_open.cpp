// Opens tokenizer tables without copying them. They are untrusted: every size, offset and id is
// checked here once, so that lookups need no checks.
#include <bit>
#include <cmath>
#include <string>

#include "base/error.h"
#include "tokenizer/tables.h"

namespace leq {
namespace {

class TableOpener {
 public:
  TableOpener(const BlobFinder& find, std::string_view source) : find_(find), source_(source) {}

  std::span<const std::byte> bytes(std::string_view name) const {
    const auto found = find_(name);
    require(found.has_value(), source_, ": table ", name,
            " is missing; the file may hold no tokenizer, convert the model again");
    return *found;
  }

  // A table of T with `count` entries, or with any number of entries if `count` is 0.
  template <class T>
  std::span<const T> table(std::string_view name, std::size_t count) const {
    const auto raw = bytes(name);
    require(reinterpret_cast<std::uintptr_t>(raw.data()) % alignof(T) == 0, source_, ": table ",
            name, " is not aligned to ", alignof(T), " bytes");
    require(raw.size() % sizeof(T) == 0 && (count == 0 || raw.size() / sizeof(T) == count), source_,
            ": table ", name, " has ", raw.size(), " bytes, expected ",
            count == 0 ? "a multiple of " + std::to_string(sizeof(T))
                       : std::to_string(count * sizeof(T)));
    return {reinterpret_cast<const T*>(raw.data()), raw.size() / sizeof(T)};
  }

  // The base-2 logarithm of a hash table's number of slots.
  int hash_bits(std::string_view name, std::size_t slots) const {
    require(slots >= 2 && std::has_single_bit(slots) && slots <= std::size_t{1} << 28, source_,
            ": table ", name, " has ", slots, " slots, expected a power of two from 2");
    return static_cast<int>(std::bit_width(slots)) - 1;
  }

  // Checks that there are enough empty slots, because probing ends at an empty slot.
  void check_filled(std::string_view name, std::size_t used, std::size_t slots) const {
    require(used <= slots / 4 * 3 || used < 2, source_, ": table ", name, " has ", used, " of ",
            slots, " slots in use, at most three quarters are accepted");
  }

  [[noreturn]] void bad_entry(std::string_view name, std::size_t at, std::uint64_t value) const {
    fail(source_, ": table ", name, ": entry ", at, " is ", value,
         ", which is out of range; the file is damaged, convert the model again");
  }

 private:
  const BlobFinder& find_;
  std::string_view source_;
};

void open_pieces(const TableOpener& open, const HeaderNumbers& numbers, PieceTable& pieces) {
  pieces.bytes = open.bytes(kBytesBlob);
  pieces.offsets = open.table<std::uint32_t>(kOffsetsBlob, std::size_t{numbers.symbols} + 1);
  std::uint32_t last = 0;
  for (std::size_t i = 0; i < pieces.offsets.size(); ++i) {
    const std::uint32_t offset = pieces.offsets[i];
    if (offset < last || offset > pieces.bytes.size()) open.bad_entry(kOffsetsBlob, i, offset);
    if (offset - last > kMaxPieceBytes) open.bad_entry(kOffsetsBlob, i, offset);
    last = offset;
  }
  pieces.lookup = open.table<std::uint32_t>(kLookupBlob, 0);
  pieces.lookup_bits = open.hash_bits(kLookupBlob, pieces.lookup.size());
  std::size_t used = 0;
  for (std::size_t i = 0; i < pieces.lookup.size(); ++i) {
    const std::uint32_t id = pieces.lookup[i];
    if (id == kEmptySlot) continue;
    if (id >= numbers.symbols) open.bad_entry(kLookupBlob, i, id);
    ++used;
  }
  open.check_filled(kLookupBlob, used, pieces.lookup.size());
}

MergeTable open_merges(const TableOpener& open, std::uint32_t symbols) {
  const auto slots = open.table<MergeSlot>(kMergesBlob, 0);
  const int bits = open.hash_bits(kMergesBlob, slots.size());
  std::size_t used = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const MergeSlot& slot = slots[i];
    const bool empty = slot.left == kEmptySlot;
    const bool in_range = (slot.left < symbols) & (slot.right < symbols) & (slot.result < symbols);
    const bool good = empty ? slot.rank == kEmptySlot : in_range;
    if (!good) open.bad_entry(kMergesBlob, i, slot.left);
    used += !empty;
  }
  open.check_filled(kMergesBlob, used, slots.size());
  return {slots, bits};
}

}  // namespace

TokenizerTables open_tokenizer_tables(const BlobFinder& find, std::string_view source) {
  const TableOpener open(find, source);
  OpenedHeader header =
      read_tokenizer_header(open.bytes(kHeaderBlob), std::string(source) + ": tokenizer.header");
  require(header.numbers.pieces > 0, source, ": a tokenizer without pieces");
  TokenizerTables tables;
  tables.rules = std::move(header.rules);
  tables.cut_at_words = header.numbers.cut_at_words;
  tables.longest_piece_bytes = header.numbers.longest_piece_bytes;
  open_pieces(open, header.numbers, tables.pieces);
  tables.types = open.table<TokenType>(kTypesBlob, header.numbers.pieces);
  for (std::size_t i = 0; i < tables.types.size(); ++i) {
    if (tables.types[i] > TokenType::unused) {
      open.bad_entry(kTypesBlob, i, static_cast<std::uint64_t>(tables.types[i]));
    }
  }
  tables.merges = open_merges(open, header.numbers.symbols);
  if (tables.rules.kind == TokenizerKind::unigram) {
    tables.scores = open.table<float>(kScoresBlob, header.numbers.pieces);
    for (std::size_t i = 0; i < tables.scores.size(); ++i) {
      if (!std::isfinite(tables.scores[i])) open.bad_entry(kScoresBlob, i, 0);
    }
  }
  return tables;
}

}  // namespace leq
