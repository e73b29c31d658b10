// Finds added tokens in a text, leftmost first, then longest, as in Hugging Face's tokenizers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/spec.h"

namespace leq {

// The parts of a text in which special tokens are recognized; elsewhere their texts are plain text.
class SpecialScope {
 public:
  struct Range {
    std::size_t begin;
    std::size_t end;
  };
  static SpecialScope everywhere() { return SpecialScope({}, true); }
  static SpecialScope nowhere() { return SpecialScope({}, false); }
  // `ranges` must be ascending, must not touch, and must outlive the scope.
  static SpecialScope within(std::span<const Range> ranges) { return SpecialScope(ranges, false); }

  // Whether [begin, end) of the text is within one range.
  bool allows(std::size_t begin, std::size_t end) const {
    if (everywhere_) return true;
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), begin,
                                        [](std::size_t at, const Range& r) { return at < r.end; });
    return after != ranges_.end() && after->begin <= begin && end <= after->end;
  }
  bool in_ranges() const { return !ranges_.empty(); }
  // The first border of a range after `at`, but at most `limit`.
  std::size_t next_border(std::size_t at, std::size_t limit) const {
    for (const Range& range : ranges_) {
      if (range.begin > at) return std::min(range.begin, limit);
      if (range.end > at) return std::min(range.end, limit);
    }
    return limit;
  }

 private:
  SpecialScope(std::span<const Range> ranges, bool everywhere)
      : ranges_(ranges), everywhere_(everywhere) {}

  std::span<const Range> ranges_;
  bool everywhere_;
};

class AddedTokenMatcher {
 public:
  // `normalized`: match the tokens of normalized text, otherwise those of raw text.
  AddedTokenMatcher(std::span<const AddedToken> tokens, bool normalized);

  bool has_special() const;

  // Splits `text` into pieces: text between tokens (id kNoToken, never empty) and tokens. Outside
  // of `scope`, special tokens are plain text.
  template <class Sink>
  void cut(std::string_view text, const SpecialScope& scope, Sink&& sink) const {
    Cut next{text};
    while (find_next(next, scope)) {
      if (next.begin > next.done) sink(text.substr(next.done, next.begin - next.done), kNoToken);
      sink(text.substr(next.begin, next.end - next.begin), next.id);
      next.done = next.end;
    }
    if (next.done < text.size()) sink(text.substr(next.done), kNoToken);
  }

 private:
  // A node of a trie; its children form a linked list.
  struct Node {
    std::uint32_t child = 0;    // 0: none
    std::uint32_t sibling = 0;  // 0: none
    std::uint32_t token = kNone;
    char byte = 0;
  };
  struct Cut {
    std::string_view text;
    std::size_t done = 0;   // everything before this offset was emitted
    std::size_t begin = 0;  // offset of the token found
    std::size_t end = 0;
    Token id = kNoToken;
    std::size_t search = 0;  // offset at which the search continues
  };
  static constexpr std::uint32_t kNone = 0xffffffffu;

  void add(const AddedToken& token, std::uint32_t index);
  std::uint32_t child(std::uint32_t node, char byte) const;
  bool find_next(Cut& next, const SpecialScope& scope) const;
  bool accept(const AddedToken& token, Cut& next, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> first_;  // [256] children of the root
};

}  // namespace leq
