// The steps before a tokenizer's model: normalizing a text and splitting it into words.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/pattern.h"
#include "tokenizer/spec.h"

namespace leq {

// The maximum length after normalization of a text of `bytes` bytes. Needed because a file's steps
// are untrusted: thirty steps that each double a letter would make a gigabyte of it.
constexpr std::size_t longest_normalized(std::size_t bytes) { return 16 * bytes + (64u << 10); }

struct NormalizeOptions {
  bool prepend = true;        // apply prepend steps: the stretch begins its segment
  std::size_t max_bytes = 0;  // limit of the result and of intermediate texts
  std::string_view source;    // file of the steps, for errors
};

// Normalizes text before it is split: NFC, and the literal rules of a tokenizer's normalizers.
// `text` must be well-formed UTF-8. The result is `text` itself if nothing changes, otherwise a
// view of `buffer`. Throws Error naming source and step if a text would exceed max_bytes, before
// allocating more memory than that.
std::string_view normalize(std::span<const Normalizer> steps, std::string_view text,
                           const NormalizeOptions& options, std::string& buffer);

// Throws Error like normalize if the steps lengthen a text made of their own patterns beyond
// longest_normalized, because such a file could not be used for any text.
void check_normalizers(std::span<const Normalizer> steps, std::string_view source);

// Unicode normalization form C; linear in the length except for sorting runs of combining marks.
std::string nfc(std::string_view text);

// Splits normalized text into pieces, within which symbols are merged independently.
class PreTokenizerChain {
 public:
  // Compiles the patterns. Throws Error naming `source`.
  PreTokenizerChain(std::span<const PreTokenizer> steps, std::string_view source);

  struct Flags {
    bool begins_segment = true;  // false after an invalid byte: no prefix is added
    bool at_text_start = true;
  };
  // Receives a piece; the view is valid only during the call.
  using Sink = std::function<void(std::string_view)>;

  // Calls `sink` for each piece of `text` (well-formed UTF-8); pieces are never empty.
  void cut(std::string_view text, Flags flags, PatternMatcher& matcher, const Sink& sink) const;

 private:
  struct Step {
    PreTokenizer rule;
    std::vector<Pattern> pattern;  // one for a split step, otherwise none
  };
  struct Run {
    Flags flags;
    PatternMatcher& matcher;
    const Sink& sink;
  };
  void apply(std::size_t step, std::string_view text, Run& run) const;
  void split(std::size_t step, std::string_view text, Run& run) const;
  void split_merging(std::size_t step, std::string_view text, Run& run) const;
  void metaspace(std::size_t step, std::string_view text, Run& run) const;

  std::vector<Step> steps_;
};

// Splits before every U+2581 that follows another character, and calls `sink` with each word.
template <class Sink>
void cut_words(std::string_view text, Sink&& sink) {
  std::size_t begin = 0;
  std::size_t from = 0;
  for (std::size_t at = 0; (at = text.find(kSpaceMark, from)) != std::string_view::npos;) {
    if (at > from) {
      sink(text.substr(begin, at - begin));
      begin = at;
    }
    from = at + kSpaceMark.size();
  }
  if (begin < text.size()) sink(text.substr(begin));
}

}  // namespace leq
