// Converts a TokenizerSpec to tables: checks it, numbers symbols, hashes pieces and merges.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/pattern.h"
#include "tokenizer/tables.h"

namespace leq {
namespace {

// Longer pieces are not split when merges are derived from pieces.
constexpr std::size_t kMaxSplitBytes = 512;

void check_pieces(const TokenizerSpec& spec) {
  const std::string_view source = spec.source;
  require(!spec.pieces.empty() && spec.pieces.size() <= kMaxPieces, source, ": ",
          spec.pieces.size(), " pieces, expected 1 to ", kMaxPieces);
  require(spec.types.size() == spec.pieces.size(), source, ": ", spec.types.size(),
          " piece types, expected ", spec.pieces.size());
  const bool scored =
      spec.kind == TokenizerKind::unigram || spec.merge_order == MergeOrder::by_score;
  require(!scored || spec.scores.size() == spec.pieces.size(), source, ": ", spec.scores.size(),
          " scores, expected ", spec.pieces.size());
  for (const float score : spec.scores) {
    require(std::isfinite(score), source, ": a piece's score is ", score, ", expected a number");
  }
  for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
    require(spec.pieces[id].size() <= kMaxPieceBytes, source, ": piece ", id, " has ",
            spec.pieces[id].size(), " bytes, at most ", kMaxPieceBytes, " are accepted");
  }
}

void check_id(const TokenizerSpec& spec, Token id, std::string_view what) {
  require(id >= 0 && static_cast<std::size_t>(id) < spec.pieces.size(), spec.source, ": ", what,
          " has id ", id, ", expected an id below ", spec.pieces.size());
}

void check_tokens(const TokenizerSpec& spec) {
  const std::string_view source = spec.source;
  for (const Merge& merge : spec.merges) {
    for (const Token id : {merge.left, merge.right, merge.result}) {
      check_id(spec, id, "a merge");
      require(!spec.pieces[static_cast<std::size_t>(id)].empty(), source, ": a merge uses id ", id,
              ", which has no piece");
    }
  }
  require(spec.added.size() <= kMaxAddedTokens, source, ": ", spec.added.size(),
          " added tokens, at most ", kMaxAddedTokens, " are accepted");
  for (const AddedToken& token : spec.added) {
    check_id(spec, token.id, "an added token");
    require(!token.content.empty() && token.content.size() <= kMaxPieceBytes, source,
            ": added token ", token.id, " has ", token.content.size(), " bytes, expected 1 to ",
            kMaxPieceBytes);
    require(!token.normalized || !first_invalid_utf8(token.content), source, ": added token ",
            token.id, " is no UTF-8");
  }
  for (const Token id : {spec.unknown, spec.bos, spec.eos}) {
    if (id != kNoToken) check_id(spec, id, "an unknown, bos or eos token");
  }
}

void check_steps(const TokenizerSpec& spec) {
  const std::string_view source = spec.source;
  require(spec.normalizers.size() <= kMaxTextSteps && spec.pre_tokenizers.size() <= kMaxTextSteps,
          source, ": more than ", kMaxTextSteps, " normalizers or pre-tokenizers");
  for (const Normalizer& step : spec.normalizers) {
    for (const std::string& text : {step.pattern, step.content}) {
      require(text.size() <= kMaxPatternBytes && !first_invalid_utf8(text), source,
              ": a normalizer's text must be UTF-8 of at most ", kMaxPatternBytes, " bytes");
    }
  }
  for (const PreTokenizer& step : spec.pre_tokenizers) {
    if (step.kind == PreTokenizer::Kind::split) Pattern(step.pattern, source);
  }
}

int table_bits(std::size_t entries) {
  return std::max(1, static_cast<int>(std::bit_width(entries + entries / 2)));
}

// All tables under construction, in vectors that PieceTable and MergeTable can read.
class TableBuilder {
 public:
  explicit TableBuilder(const TokenizerSpec& spec) : spec_(spec) {}

  void build() {
    for (const auto& piece : spec_.pieces) add_symbol(piece);
    if (spec_.merge_order == MergeOrder::by_score && spec_.kind != TokenizerKind::unigram) {
      hash_pieces();
      add_hidden_characters();
    }
    hash_pieces();
    if (spec_.kind != TokenizerKind::unigram) {
      if (spec_.merge_order == MergeOrder::listed)
        list_merges();
      else
        find_merges();
    }
    hash_merges();
  }

  HeaderNumbers numbers() const {
    HeaderNumbers numbers;
    numbers.pieces = static_cast<std::uint32_t>(spec_.pieces.size());
    numbers.symbols = static_cast<std::uint32_t>(table_.symbols());
    for (const auto& piece : spec_.pieces) {
      numbers.longest_piece_bytes =
          std::max(numbers.longest_piece_bytes, static_cast<std::uint32_t>(piece.size()));
    }
    numbers.cut_at_words = spec_.kind == TokenizerKind::sentencepiece_bpe && !spec_.ignore_merges &&
                           !a_merge_crosses_words();
    return numbers;
  }

  std::vector<std::uint32_t> offsets = {0};
  std::vector<std::byte> bytes;
  std::vector<std::uint32_t> lookup;
  std::vector<MergeSlot> merge_slots;

 private:
  void add_symbol(std::string_view text) {
    const auto part = std::as_bytes(std::span(text));
    bytes.insert(bytes.end(), part.begin(), part.end());
    require(bytes.size() < kEmptySlot, spec_.source, ": the pieces have 4 GB or more");
    offsets.push_back(static_cast<std::uint32_t>(bytes.size()));
  }

  bool is_mergeable(std::size_t id) const {
    return id >= spec_.pieces.size() ||
           (spec_.types[id] == TokenType::normal && !spec_.pieces[id].empty());
  }

  void hash_pieces() {
    table_.offsets = offsets;
    table_.bytes = bytes;
    table_.lookup_bits = table_bits(table_.symbols());
    lookup.assign(std::size_t{1} << table_.lookup_bits, kEmptySlot);
    table_.lookup = lookup;
    for (std::size_t id = 0; id < table_.symbols(); ++id) {
      if (!is_mergeable(id)) continue;
      const std::string_view text = table_.text(id);
      if (table_.find(text) != kEmptySlot) continue;  // only the lowest id of equal pieces
      std::size_t at = hash_slot(hash_piece(text), table_.lookup_bits);
      while (lookup[at] != kEmptySlot) at = (at + 1) & (lookup.size() - 1);
      lookup[at] = static_cast<std::uint32_t>(id);
    }
  }

  // Adds characters of pieces that are no pieces, because sentencepiece merges them, too.
  void add_hidden_characters() {
    std::vector<std::string_view> hidden;
    for (std::size_t id = 0; id < spec_.pieces.size(); ++id) {
      if (!is_mergeable(id)) continue;
      std::string_view rest = spec_.pieces[id];
      while (!rest.empty()) {
        const std::string_view one = rest.substr(0, std::max<std::size_t>(utf8_length(rest), 1));
        if (table_.find(one) == kEmptySlot) hidden.push_back(one);
        rest.remove_prefix(one.size());
      }
    }
    std::sort(hidden.begin(), hidden.end());
    hidden.erase(std::unique(hidden.begin(), hidden.end()), hidden.end());
    require(hidden.size() <= kMaxPieces, spec_.source, ": ", hidden.size(),
            " characters of pieces are no pieces, at most ", kMaxPieces, " are accepted");
    for (const std::string_view one : hidden) add_symbol(one);
  }

  void list_merges() {
    std::uint32_t rank = 0;
    for (const Merge& merge : spec_.merges) {
      merges_.push_back({static_cast<std::uint32_t>(merge.left),
                         static_cast<std::uint32_t>(merge.right), rank++,
                         static_cast<std::uint32_t>(merge.result)});
    }
  }

  // rank[id] of the merges that produce a piece; equal scores have equal ranks.
  std::vector<std::uint32_t> piece_ranks() const {
    std::vector<std::uint32_t> rank(spec_.pieces.size());
    std::iota(rank.begin(), rank.end(), 0u);
    if (spec_.merge_order == MergeOrder::by_id) return rank;
    std::vector<std::uint32_t> order = rank;
    const auto score = [&](std::uint32_t id) { return spec_.scores[id]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return score(a) > score(b); });
    std::uint32_t current = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && score(order[i]) != score(order[i - 1])) ++current;
      rank[order[i]] = current;
    }
    return rank;
  }

  // Finds every pair of symbols whose concatenation is a piece.
  void find_merges() {
    const auto rank = piece_ranks();
    const bool by_bytes = spec_.kind == TokenizerKind::byte_bpe;
    for (std::size_t id = 0; id < spec_.pieces.size(); ++id) {
      const std::string_view piece = spec_.pieces[id];
      if (!is_mergeable(id) || table_.find(piece) != id) continue;
      require(piece.size() <= kMaxSplitBytes, spec_.source, ": piece ", id, " has ", piece.size(),
              " bytes, at most ", kMaxSplitBytes, " are accepted here");
      std::uint64_t hash = kHashStart;
      for (std::size_t cut = 1; cut < piece.size(); ++cut) {
        hash = hash_byte(hash, piece[cut - 1]);
        const bool inside_character = (static_cast<unsigned char>(piece[cut]) & 0xc0) == 0x80;
        if (!by_bytes && inside_character) continue;
        const std::uint32_t left = table_.find(piece.substr(0, cut), hash);
        if (left == kEmptySlot) continue;
        const std::uint32_t right = table_.find(piece.substr(cut));
        if (right == kEmptySlot) continue;
        merges_.push_back({left, right, rank[id], static_cast<std::uint32_t>(id)});
      }
    }
  }

  void hash_merges() {
    const int bits = table_bits(merges_.size());
    merge_slots.assign(std::size_t{1} << bits, MergeSlot{});
    const std::size_t mask = merge_slots.size() - 1;
    for (const MergeSlot& merge : merges_) {
      std::size_t at = hash_slot(std::uint64_t{merge.left} << 32 | merge.right, bits);
      const auto taken = [&](const MergeSlot& slot) {
        return slot.left != kEmptySlot && (slot.left != merge.left || slot.right != merge.right);
      };
      while (taken(merge_slots[at])) at = (at + 1) & mask;
      merge_slots[at] = merge;  // if a pair is listed twice, the last one counts
    }
  }

  bool a_merge_crosses_words() const {
    return std::any_of(merges_.begin(), merges_.end(), [&](const MergeSlot& merge) {
      const std::string_view text = table_.text(merge.result);
      const std::size_t word = std::min(text.size(), text.find_first_not_of(kSpaceMark));
      return text.find(kSpaceMark, word) != std::string_view::npos;
    });
  }

  const TokenizerSpec& spec_;
  PieceTable table_;
  std::vector<MergeSlot> merges_;
};

template <class T>
NamedBlob blob(std::string_view name, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {std::string(name), {bytes.begin(), bytes.end()}};
}

}  // namespace

std::vector<NamedBlob> tokenizer_tables(const TokenizerSpec& spec) {
  check_pieces(spec);
  check_tokens(spec);
  check_steps(spec);
  TableBuilder builder(spec);
  builder.build();
  std::vector<NamedBlob> blobs;
  blobs.push_back(write_tokenizer_header(spec, builder.numbers()));
  blobs.push_back(blob(kOffsetsBlob, builder.offsets));
  blobs.push_back(blob(kBytesBlob, builder.bytes));
  blobs.push_back(blob(kTypesBlob, spec.types));
  blobs.push_back(blob(kLookupBlob, builder.lookup));
  blobs.push_back(blob(kMergesBlob, builder.merge_slots));
  if (spec.kind == TokenizerKind::unigram) blobs.push_back(blob(kScoresBlob, spec.scores));
  return blobs;
}

}  // namespace leq
