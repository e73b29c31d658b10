// Splits normalized text into pieces, within which symbols are merged independently.
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
