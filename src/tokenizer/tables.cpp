#include "tokenizer/tables.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "tokenizer/pattern.h"

namespace leq {
namespace {

constexpr std::uint32_t kMagic = 0x4b54514c;  // "LQTK"

constexpr std::string_view kHeaderBlob = "tokenizer.header";
constexpr std::string_view kOffsetsBlob = "tokenizer.offsets";
constexpr std::string_view kBytesBlob = "tokenizer.bytes";
constexpr std::string_view kTypesBlob = "tokenizer.types";
constexpr std::string_view kLookupBlob = "tokenizer.lookup";
constexpr std::string_view kMergesBlob = "tokenizer.merges";
constexpr std::string_view kScoresBlob = "tokenizer.scores";

// The header blob has everything in the spec except pieces, types, scores and merges.
struct HeaderNumbers {
  std::uint32_t pieces = 0;
  std::uint32_t symbols = 0;
  std::uint32_t longest_piece_bytes = 0;
  bool cut_at_words = false;
};
struct OpenedHeader {
  TokenizerSpec rules;
  HeaderNumbers numbers;
};

// Writes the header blob of a tokenizer: version, counts, flags and the text rules, as a sequence
// of little-endian numbers and length-prefixed strings.
class HeaderWriter {
 public:
  template <class T>
  void number(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out.insert(out.end(), bytes, bytes + sizeof(T));
  }
  void text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    const auto bytes = as_bytes(value);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  template <std::size_t N>
  void flags(const bool (&values)[N]) {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < N; ++i) bits |= std::uint32_t{values[i]} << i;
    number(bits);
  }

  std::vector<std::byte> out;
};

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> bytes, std::string_view source)
      : reader_(bytes, source), source_(source) {}

  template <class T>
  T number(std::string_view what) {
    return reader_.read<T>(what);
  }
  std::string text(std::string_view what, std::size_t limit) {
    const auto size = number<std::uint32_t>(what);
    require(size <= limit, source_, ": ", what, " of ", size, " bytes, at most ", limit,
            " are accepted");
    return std::string(as_text(reader_.take(size, what)));
  }
  // Reads a text that will be inserted in well-formed UTF-8, which the patterns require.
  std::string utf8(std::string_view what, std::size_t limit) {
    std::string value = text(what, limit);
    require(!first_invalid_utf8(value), source_, ": ", what, " is no UTF-8");
    return value;
  }
  std::size_t count(std::string_view what, std::size_t limit) {
    const auto value = number<std::uint32_t>(what);
    require(value <= limit, source_, ": ", value, " ", what, ", at most ", limit, " are accepted");
    return value;
  }
  template <class Enum>
  Enum choice(std::string_view what, Enum last) {
    const auto value = number<std::uint32_t>(what);
    require(value <= static_cast<std::uint32_t>(last), source_, ": unknown ", what, " ", value,
            ", expected at most ", static_cast<std::uint32_t>(last),
            "; the file may need a newer version of leq");
    return static_cast<Enum>(value);
  }
  template <std::size_t N>
  void flags(std::string_view what, bool* (&&values)[N]) {
    const auto bits = number<std::uint32_t>(what);
    require(bits >> N == 0, source_, ": unknown ", what, " ", bits);
    for (std::size_t i = 0; i < N; ++i) *values[i] = (bits >> i & 1) != 0;
  }
  // Reads an id below `pieces`, or kNoToken.
  Token id(std::string_view what, std::size_t pieces) {
    const auto value = number<Token>(what);
    require(value == kNoToken || (value >= 0 && static_cast<std::size_t>(value) < pieces), source_,
            ": ", what, " is ", value, ", expected -1 or an id below ", pieces);
    return value;
  }
  std::size_t left() const { return reader_.left(); }

 private:
  ByteReader reader_;
  std::string_view source_;
};

AddedToken read_added(HeaderReader& in, std::size_t pieces, std::string_view source) {
  AddedToken token;
  token.id = in.id("added token's id", pieces);
  in.flags("added token's flags",
           {&token.special, &token.lstrip, &token.rstrip, &token.single_word, &token.normalized});
  token.content = in.text("added token", kMaxPieceBytes);
  require(token.id != kNoToken && !token.content.empty(), source,
          ": an added token without an id or a text");
  require(!token.normalized || !first_invalid_utf8(token.content), source,
          ": an added token that is no UTF-8");
  return token;
}

void read_rules(HeaderReader& in, TokenizerSpec& rules, std::size_t pieces,
                std::string_view source) {
  rules.unknown = in.id("unknown token", pieces);
  rules.bos = in.id("bos token", pieces);
  rules.eos = in.id("eos token", pieces);
  rules.source = in.text("tokenizer source", kMaxPatternBytes);
  const std::size_t normalizers = in.count("normalizers", kMaxTextSteps);
  for (std::size_t i = 0; i < normalizers; ++i) {
    Normalizer& step = rules.normalizers.emplace_back();
    step.kind = in.choice("normalizer", Normalizer::Kind::collapse_spaces);
    step.pattern = in.utf8("normalizer pattern", kMaxPatternBytes);
    step.content = in.utf8("normalizer content", kMaxPatternBytes);
  }
  const std::size_t steps = in.count("pre-tokenizers", kMaxTextSteps);
  for (std::size_t i = 0; i < steps; ++i) {
    PreTokenizer& step = rules.pre_tokenizers.emplace_back();
    step.kind = in.choice("pre-tokenizer", PreTokenizer::Kind::prefix_space);
    step.behavior = in.choice("split behavior", PreTokenizer::Behavior::merged_with_next);
    step.prepend = in.choice("prepend scheme", PrependScheme::always);
    in.flags("pre-tokenizer flags", {&step.invert, &step.cut_words});
    step.pattern = in.text("pre-tokenizer pattern", kMaxPatternBytes);
  }
  const std::size_t added = in.count("added tokens", kMaxAddedTokens);
  for (std::size_t i = 0; i < added; ++i) rules.added.push_back(read_added(in, pieces, source));
  require(in.left() == 0, source, ": ", in.left(), " bytes after the end");
}

NamedBlob write_header(const TokenizerSpec& spec, const HeaderNumbers& numbers) {
  HeaderWriter out;
  out.number(kMagic);
  out.number(kTokenizerTablesVersion);
  out.number(static_cast<std::uint32_t>(spec.kind));
  out.number(numbers.pieces);
  out.number(numbers.symbols);
  out.number(numbers.longest_piece_bytes);
  out.flags({spec.ignore_merges, spec.byte_fallback, spec.fuse_unknown, spec.strip_leading_space,
             spec.add_bos, spec.add_eos, numbers.cut_at_words});
  out.number(spec.unknown);
  out.number(spec.bos);
  out.number(spec.eos);
  out.text(spec.source);
  out.number(static_cast<std::uint32_t>(spec.normalizers.size()));
  for (const Normalizer& step : spec.normalizers) {
    out.number(static_cast<std::uint32_t>(step.kind));
    out.text(step.pattern);
    out.text(step.content);
  }
  out.number(static_cast<std::uint32_t>(spec.pre_tokenizers.size()));
  for (const PreTokenizer& step : spec.pre_tokenizers) {
    out.number(static_cast<std::uint32_t>(step.kind));
    out.number(static_cast<std::uint32_t>(step.behavior));
    out.number(static_cast<std::uint32_t>(step.prepend));
    out.flags({step.invert, step.cut_words});
    out.text(step.pattern);
  }
  out.number(static_cast<std::uint32_t>(spec.added.size()));
  for (const AddedToken& token : spec.added) {
    out.number(token.id);
    out.flags({token.special, token.lstrip, token.rstrip, token.single_word, token.normalized});
    out.text(token.content);
  }
  return {std::string(kHeaderBlob), std::move(out.out)};
}

OpenedHeader read_header(std::span<const std::byte> bytes, std::string_view source) {
  HeaderReader in(bytes, source);
  require(in.number<std::uint32_t>("magic") == kMagic, source,
          ": not a tokenizer header (expected it to begin with \"LQTK\")");
  const auto version = in.number<std::uint32_t>("version");
  require(version == kTokenizerTablesVersion, source, ": tokenizer tables of version ", version,
          ", this program reads ", kTokenizerTablesVersion, "; convert the model again");
  OpenedHeader header;
  TokenizerSpec& rules = header.rules;
  HeaderNumbers& numbers = header.numbers;
  rules.kind = in.choice("tokenizer kind", TokenizerKind::unigram);
  numbers.pieces = static_cast<std::uint32_t>(in.count("pieces", kMaxPieces));
  numbers.symbols = static_cast<std::uint32_t>(in.count("symbols", 2 * kMaxPieces));
  require(numbers.symbols >= numbers.pieces, source, ": ", numbers.symbols, " symbols, expected ",
          numbers.pieces, " or more");
  numbers.longest_piece_bytes =
      static_cast<std::uint32_t>(in.count("bytes of the longest piece", kMaxPieceBytes));
  in.flags("tokenizer flags",
           {&rules.ignore_merges, &rules.byte_fallback, &rules.fuse_unknown,
            &rules.strip_leading_space, &rules.add_bos, &rules.add_eos, &numbers.cut_at_words});
  read_rules(in, rules, numbers.pieces, source);
  return header;
}

// Converts a TokenizerSpec to tables: checks it, numbers symbols, hashes pieces and merges.

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

// Limit of the length of a run of used slots, because probing takes as many steps as the run is
// long, and a file may choose entries that collide. Real tables have runs below 100.
constexpr std::size_t kMaxRun = 4096;

void check_run(std::size_t length, std::string_view name, std::string_view source) {
  require(length <= kMaxRun, source, ": table ", name, " has more than ", kMaxRun,
          " slots in use in a row, which no tokenizer needs");
}

template <class IsUsed>
void check_runs(std::string_view name, std::size_t slots, std::string_view source,
                const IsUsed& is_used) {
  for (std::size_t i = 0, run = 0; i < slots + kMaxRun; ++i) {  // a run may go on at the start
    run = is_used(i & (slots - 1)) ? run + 1 : 0;
    check_run(run, name, source);
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
      const std::size_t first = hash_slot(hash_piece(text), table_.lookup_bits);
      std::size_t at = first;
      while (lookup[at] != kEmptySlot && table_.text(lookup[at]) != text) {
        at = (at + 1) & (lookup.size() - 1);
        check_run((at - first) & (lookup.size() - 1), kLookupBlob, spec_.source);
      }
      // Only the lowest id of equal pieces counts.
      if (lookup[at] == kEmptySlot) lookup[at] = static_cast<std::uint32_t>(id);
    }
    check_runs(kLookupBlob, lookup.size(), spec_.source,
               [&](std::size_t at) { return lookup[at] != kEmptySlot; });
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
      const std::size_t first = hash_slot(std::uint64_t{merge.left} << 32 | merge.right, bits);
      std::size_t at = first;
      const auto taken = [&](const MergeSlot& slot) {
        return slot.left != kEmptySlot && (slot.left != merge.left || slot.right != merge.right);
      };
      while (taken(merge_slots[at])) {
        at = (at + 1) & mask;
        check_run((at - first) & mask, kMergesBlob, spec_.source);
      }
      merge_slots[at] = merge;  // if a pair is listed twice, the last one counts
    }
    check_runs(kMergesBlob, merge_slots.size(), spec_.source,
               [&](std::size_t at) { return merge_slots[at].left != kEmptySlot; });
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
  blobs.push_back(write_header(spec, builder.numbers()));
  blobs.push_back(blob(kOffsetsBlob, builder.offsets));
  blobs.push_back(blob(kBytesBlob, builder.bytes));
  blobs.push_back(blob(kTypesBlob, spec.types));
  blobs.push_back(blob(kLookupBlob, builder.lookup));
  blobs.push_back(blob(kMergesBlob, builder.merge_slots));
  if (spec.kind == TokenizerKind::unigram) blobs.push_back(blob(kScoresBlob, spec.scores));
  return blobs;
}

namespace {

// Opens tokenizer tables without copying them. They are untrusted: every size, offset and id is
// checked here once, so that lookups need no checks.

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

  // Checks that there are enough empty slots everywhere, because probing ends at an empty slot.
  template <class IsUsed>
  void check_filled(std::string_view name, std::size_t slots, const IsUsed& is_used) const {
    std::size_t used = 0;
    for (std::size_t i = 0; i < slots; ++i) used += is_used(i);
    require(used <= slots / 4 * 3 || used < 2, source_, ": table ", name, " has ", used, " of ",
            slots, " slots in use, at most three quarters are accepted");
    check_runs(name, slots, source_, is_used);
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
  for (std::size_t i = 0; i < pieces.lookup.size(); ++i) {
    const std::uint32_t id = pieces.lookup[i];
    if (id != kEmptySlot && id >= numbers.symbols) open.bad_entry(kLookupBlob, i, id);
  }
  open.check_filled(kLookupBlob, pieces.lookup.size(),
                    [&](std::size_t i) { return pieces.lookup[i] != kEmptySlot; });
}

MergeTable open_merges(const TableOpener& open, std::uint32_t symbols) {
  const auto slots = open.table<MergeSlot>(kMergesBlob, 0);
  const int bits = open.hash_bits(kMergesBlob, slots.size());
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const MergeSlot& slot = slots[i];
    const bool empty = slot.left == kEmptySlot;
    const bool in_range = (slot.left < symbols) & (slot.right < symbols) & (slot.result < symbols);
    const bool good = empty ? slot.rank == kEmptySlot : in_range;
    if (!good) open.bad_entry(kMergesBlob, i, slot.left);
  }
  open.check_filled(kMergesBlob, slots.size(),
                    [&](std::size_t i) { return slots[i].left != kEmptySlot; });
  return {slots, bits};
}

}  // namespace

TokenizerTables open_tokenizer_tables(const BlobFinder& find, std::string_view source) {
  const TableOpener open(find, source);
  OpenedHeader header =
      read_header(open.bytes(kHeaderBlob), std::string(source) + ": tokenizer.header");
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
