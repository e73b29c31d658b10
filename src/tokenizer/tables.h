// The binary tables of a tokenizer as in a .leq file, used in place: pieces, a hash from piece to
// id, a hash from a pair of ids to their merge. docs/tokenizers.md documents the layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/spec.h"
#include "tokenizer/tokenizer.h"

namespace leq {

inline constexpr std::uint32_t kTokenizerTablesVersion = 1;
inline constexpr std::uint32_t kEmptySlot = 0xffffffffu;

// A slot of the merge table: the adjacent symbols `left` and `right` become `result`. The lowest
// rank is merged first.
struct MergeSlot {
  std::uint32_t left = kEmptySlot;
  std::uint32_t right = kEmptySlot;
  std::uint32_t rank = kEmptySlot;
  std::uint32_t result = kEmptySlot;
};
static_assert(sizeof(MergeSlot) == 16);

// FNV-1a, so that the hashes of all prefixes of a text cost one multiplication per byte.
inline constexpr std::uint64_t kHashStart = 0xcbf29ce484222325ull;
inline constexpr std::uint64_t hash_byte(std::uint64_t hash, char byte) {
  return (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3ull;
}
inline std::uint64_t hash_piece(std::string_view piece) {
  std::uint64_t hash = kHashStart;
  for (const char byte : piece) hash = hash_byte(hash, byte);
  return hash;
}
// The first slot to probe in a table of 2^bits slots.
inline constexpr std::size_t hash_slot(std::uint64_t hash, int bits) {
  return static_cast<std::size_t>((hash * 0x9e3779b97f4a7c15ull) >> (64 - bits));
}

// Looks up merges in a table that belongs to the file.
class MergeTable {
 public:
  MergeTable() = default;
  // 2^bits slots, at least one of which is empty.
  MergeTable(std::span<const MergeSlot> slots, int bits) : slots_(slots.data()), bits_(bits) {}

  // The slot of a pair; its rank is kEmptySlot if the pair has no merge.
  const MergeSlot& find(std::uint32_t left, std::uint32_t right) const {
    const std::size_t mask = (std::size_t{1} << bits_) - 1;
    const std::uint64_t pair = std::uint64_t{left} << 32 | right;
    for (std::size_t at = hash_slot(pair, bits_);; at = (at + 1) & mask) {
      const MergeSlot& slot = slots_[at];
      if (slot.left == left && slot.right == right) return slot;
      if (slot.left == kEmptySlot) return slot;
    }
  }

 private:
  const MergeSlot* slots_ = nullptr;
  int bits_ = 0;
};

// Looks up pieces in tables that belong to the file. Symbols are the pieces [0, pieces), followed
// by characters that occur only within longer pieces.
class PieceTable {
 public:
  std::span<const std::uint32_t> offsets;  // [symbols + 1]
  std::span<const std::byte> bytes;
  std::span<const std::uint32_t> lookup;  // [2^lookup_bits] ids or kEmptySlot
  int lookup_bits = 0;

  std::size_t symbols() const { return offsets.size() - 1; }
  std::string_view text(std::size_t id) const {
    return {reinterpret_cast<const char*>(bytes.data()) + offsets[id],
            offsets[id + 1] - offsets[id]};
  }
  // The id of the normal piece with this exact text, or kEmptySlot. `hash`: hash_piece of the text.
  std::uint32_t find(std::string_view piece, std::uint64_t hash) const {
    const std::size_t mask = lookup.size() - 1;
    for (std::size_t at = hash_slot(hash, lookup_bits);; at = (at + 1) & mask) {
      const std::uint32_t id = lookup[at];
      if (id == kEmptySlot || text(id) == piece) return id;
    }
  }
  std::uint32_t find(std::string_view piece) const { return find(piece, hash_piece(piece)); }
};

// An opened tokenizer: small parts are copied, large ones are views of the tables.
struct TokenizerTables {
  TokenizerSpec rules;  // without pieces, types, scores and merges
  PieceTable pieces;
  std::span<const TokenType> types;  // [pieces]
  std::span<const float> scores;     // [pieces], for unigram only
  MergeTable merges;
  // For sentencepiece BPE: no merge crosses the start of a word, so words can be merged separately.
  bool cut_at_words = false;
  std::size_t longest_piece_bytes = 0;

  std::size_t size() const { return types.size(); }
};

// Checks and opens tables, which must outlive the result. Throws Error naming source and table.
TokenizerTables open_tokenizer_tables(const BlobFinder& tables, std::string_view source);

}  // namespace leq
