// Unigram: finds the segmentation with the highest sum of log probabilities (Viterbi; Kudo 2018).
// Sums are in float and in text order, as in sentencepiece.
#include <algorithm>

#include "base/text.h"
#include "tokenizer/models.h"

namespace leq {
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
