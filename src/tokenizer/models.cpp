#include "tokenizer/models.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/text.h"

namespace leq {
namespace {

// Up to this length, a linear search for the lowest rank is faster than the heap.
constexpr std::size_t kShort = 48;
constexpr std::uint32_t kEnd = 0xffffffffu;

void merge_short(const MergeTable& table, std::vector<std::uint32_t>& symbols) {
  std::array<std::uint32_t, kShort> ranks;  // [i] rank of the pair i, i + 1
  std::array<std::uint32_t, kShort> results;
  std::uint32_t* ids = symbols.data();
  std::size_t pairs = symbols.size() - 1;
  const auto look_up = [&](std::size_t i) {
    const MergeSlot& slot = table.find(ids[i], ids[i + 1]);
    ranks[i] = slot.rank;
    results[i] = slot.result;
  };
  for (std::size_t i = 0; i < pairs; ++i) look_up(i);
  while (pairs > 0) {
    std::size_t best = 0;
    std::uint32_t lowest = ranks[0];
    for (std::size_t i = 1; i < pairs; ++i) {
      if (ranks[i] < lowest) {
        lowest = ranks[i];
        best = i;
      }
    }
    if (lowest == kEmptySlot) break;
    ids[best] = results[best];
    const std::size_t moved = pairs - best - 1;
    std::memmove(ids + best + 1, ids + best + 2, moved * sizeof(std::uint32_t));
    std::memmove(&ranks[best], &ranks[best + 1], moved * sizeof(std::uint32_t));
    std::memmove(&results[best], &results[best + 1], moved * sizeof(std::uint32_t));
    --pairs;
    if (best > 0) look_up(best - 1);
    if (best < pairs) look_up(best);
  }
  symbols.resize(pairs + 1);
}

}  // namespace

void Merger::merge(const MergeTable& table, std::vector<std::uint32_t>& symbols) {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShort)
    merge_short(table, symbols);
  else
    merge_long(table, symbols);
}

// The rank of the pair of `at` and its successor; kEmptySlot if the pair has no merge.
std::uint32_t Merger::rank_at(const MergeTable& table, const std::vector<std::uint32_t>& symbols,
                              std::uint32_t at, std::uint32_t& result) const {
  const std::uint32_t right = next_[at];
  if (right == kEnd || symbols[at] == kEmptySlot) return kEmptySlot;
  const MergeSlot& slot = table.find(symbols[at], symbols[right]);
  result = slot.result;
  return slot.rank;
}

void Merger::merge_long(const MergeTable& table, std::vector<std::uint32_t>& symbols) {
  const auto count = static_cast<std::uint32_t>(symbols.size());
  heap_.clear();
  heap_.reserve(count);
  next_.resize(count);
  previous_.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    next_[i] = i + 1 < count ? i + 1 : kEnd;
    previous_[i] = i > 0 ? i - 1 : kEnd;
  }
  std::uint32_t result = 0;
  const auto push = [&](std::uint32_t at) {
    const std::uint32_t rank = rank_at(table, symbols, at, result);
    if (rank != kEmptySlot) heap_.push_back(std::uint64_t{rank} << 32 | at);
    return rank != kEmptySlot;
  };
  for (std::uint32_t i = 0; i < count; ++i) push(i);
  std::ranges::make_heap(heap_, std::greater());
  const auto push_ordered = [&](std::uint32_t at) {
    if (push(at)) std::ranges::push_heap(heap_, std::greater());
  };
  while (!heap_.empty()) {
    std::ranges::pop_heap(heap_, std::greater());
    const std::uint64_t top = heap_.back();
    heap_.pop_back();
    const auto at = static_cast<std::uint32_t>(top);
    // A heap entry is stale if its pair has changed since; the new pair has an entry of its
    // own.
    if (rank_at(table, symbols, at, result) != top >> 32) continue;
    const std::uint32_t right = next_[at];
    symbols[at] = result;
    symbols[right] = kEmptySlot;
    next_[at] = next_[right];
    if (next_[right] != kEnd) previous_[next_[right]] = at;
    push_ordered(at);
    if (previous_[at] != kEnd) push_ordered(previous_[at]);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i != kEnd; i = next_[i]) symbols[kept++] = symbols[i];
  symbols.resize(kept);
}

// Byte-level BPE: every byte is a symbol, and pairs are merged by rank.
void encode_byte_bpe(const Model& model, std::string_view piece, ModelScratch& scratch,
                     std::vector<Token>& out) {
  const TokenizerTables& tables = model.tables;
  if (tables.rules.ignore_merges && append_whole(tables, piece, out)) return;
  auto& symbols = scratch.symbols;
  symbols.clear();
  const Token unknown = tables.rules.unknown;
  for (const char byte : piece) {
    const std::uint32_t id = model.alphabet.bytes[static_cast<unsigned char>(byte)];
    if (id != kEmptySlot) {
      symbols.push_back(id);
    } else if (unknown != kNoToken) {
      const auto symbol = static_cast<std::uint32_t>(unknown);
      if (!tables.rules.fuse_unknown || symbols.empty() || symbols.back() != symbol) {
        symbols.push_back(symbol);
      }
    }
  }
  scratch.merger.merge(tables.merges, symbols);
  // Damaged tables may result in a symbol that is not a token; it is dropped.
  for (const std::uint32_t id : symbols) {
    if (id < tables.size()) out.push_back(static_cast<Token>(id));
  }
}

// Sentencepiece BPE: every character is a symbol, and pairs are merged by rank or score; a
// character without a piece falls back to its bytes.

namespace {

bool falls_back(const Model& model, std::string_view character) {
  return model.tables.rules.byte_fallback && std::ranges::all_of(character, [&](char c) {
           return model.alphabet.fallback_bytes[static_cast<unsigned char>(c)] != kEmptySlot;
         });
}

std::uint32_t character_symbol(const Model& model, std::string_view character) {
  if (character.size() == 1) {
    const auto byte = static_cast<unsigned char>(character[0]);
    return byte < 128 ? model.alphabet.ascii[byte] : kEmptySlot;
  }
  return model.tables.pieces.find(character);
}

void encode_word(const Model& model, std::string_view word, ModelScratch& scratch,
                 std::vector<Token>& out) {
  // Characters without a symbol split the word, because no merge can cross them, unless no token
  // stands for them: Hugging Face's tokenizers then merge their neighbours.
  const bool has_unknown = model.tables.rules.unknown != kNoToken;
  auto& symbols = scratch.symbols;
  symbols.clear();
  const std::size_t first = out.size();
  const auto flush = [&] {
    scratch.merger.merge(model.tables.merges, symbols);
    for (const std::uint32_t id : symbols) {
      if (id < model.tables.size())
        out.push_back(static_cast<Token>(id));
      else
        append_unknown(model, model.tables.pieces.text(id), first, out);
    }
    symbols.clear();
  };
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_length(word.substr(i)), 1);
    const std::string_view character = word.substr(i, length);
    const std::uint32_t symbol = character_symbol(model, character);
    if (symbol != kEmptySlot) {
      symbols.push_back(symbol);
    } else if (has_unknown || falls_back(model, character)) {
      flush();
      append_unknown(model, character, first, out);
    }
    i += length;
  }
  flush();
}

}  // namespace

bool append_whole(const TokenizerTables& tables, std::string_view piece, std::vector<Token>& out) {
  if (piece.size() > tables.longest_piece_bytes) return false;
  const std::uint32_t whole = tables.pieces.find(piece);
  if (whole >= tables.size()) return false;
  out.push_back(static_cast<Token>(whole));
  return true;
}

void append_unknown(const Model& model, std::string_view character, std::size_t first,
                    std::vector<Token>& out) {
  const TokenizerSpec& rules = model.tables.rules;
  const auto& bytes = model.alphabet.fallback_bytes;
  if (falls_back(model, character)) {
    for (const char byte : character) {
      out.push_back(static_cast<Token>(bytes[static_cast<unsigned char>(byte)]));
    }
  } else if (rules.unknown != kNoToken) {
    const bool fused = rules.fuse_unknown && out.size() > first && out.back() == rules.unknown;
    if (!fused) out.push_back(rules.unknown);
  }
}

void encode_sentencepiece_bpe(const Model& model, std::string_view piece, ModelScratch& scratch,
                              std::vector<Token>& out) {
  const TokenizerTables& tables = model.tables;
  if (tables.rules.ignore_merges && append_whole(tables, piece, out)) return;
  encode_word(model, piece, scratch, out);
}

// Unigram: finds the segmentation with the highest sum of log probabilities (Viterbi; Kudo 2018).
// Sums are in float and in text order, as in sentencepiece.

namespace {

void improve(ModelScratch::Best& target, float score, std::size_t begin, std::uint32_t id) {
  if (target.begin != kEmptySlot && score <= target.score) return;
  target = {score, static_cast<std::uint32_t>(begin), id};
}

// Extends the best path by each piece at `begin`, and by unknown if that character is no piece.
void extend(const Model& model, std::string_view text, std::size_t begin, ModelScratch& scratch) {
  const TokenizerTables& tables = model.tables;
  const float so_far = begin == 0 ? 0.0f : scratch.best[begin].score;
  const std::size_t longest = std::min(text.size() - begin, tables.longest_piece_bytes);
  const std::size_t one = std::max<std::size_t>(utf8_length(text.substr(begin)), 1);
  std::uint64_t hash = kHashStart;
  bool has_single = false;
  for (std::size_t length = 1; length <= longest; ++length) {
    hash = hash_byte(hash, text[begin + length - 1]);
    const std::uint32_t id = tables.pieces.find(text.substr(begin, length), hash);
    if (id >= tables.size()) continue;
    improve(scratch.best[begin + length], tables.scores[id] + so_far, begin, id);
    has_single |= length == one;
  }
  if (!has_single) {
    improve(scratch.best[begin + one], model.alphabet.unknown_score + so_far, begin, kEmptySlot);
  }
}

}  // namespace

void encode_unigram(const Model& model, std::string_view piece, ModelScratch& scratch,
                    std::vector<Token>& out) {
  auto& best = scratch.best;
  best.assign(piece.size() + 1, {});
  for (std::size_t begin = 0; begin < piece.size();) {
    if (begin == 0 || best[begin].begin != kEmptySlot) extend(model, piece, begin, scratch);
    begin += std::max<std::size_t>(utf8_length(piece.substr(begin)), 1);
  }
  auto& ends = scratch.symbols;
  ends.clear();
  for (std::size_t end = piece.size(); end > 0; end = best[end].begin) {
    if (best[end].begin >= end) break;  // unreachable, unless tables are damaged
    ends.push_back(static_cast<std::uint32_t>(end));
  }
  const std::size_t first = out.size();
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const auto& step = best[*end];
    if (step.id != kEmptySlot)
      out.push_back(static_cast<Token>(step.id));
    else
      append_unknown(model, piece.substr(step.begin, *end - step.begin), first, out);
  }
}

}  // namespace leq
