// A regular expression, compiled by PCRE2 with JIT. Tokenizers' patterns are written for other
// engines (Oniguruma, Rust regex); syntax with another meaning in PCRE2 is translated or refused.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;
struct pcre2_real_jit_stack_8;

namespace leq {

class Pattern {
 public:
  // Throws Error naming `source`, the pattern and the offset if PCRE2 refuses the pattern.
  Pattern(std::string_view pattern, std::string_view source);

 private:
  friend class PatternMatcher;
  std::shared_ptr<pcre2_real_code_8> code_;
  bool jit_ = false;
  std::string text_;
  std::string source_;
};

// A match in [begin, end); may be empty.
struct PatternMatch {
  std::size_t begin = 0;
  std::size_t end = 0;
};

// Scratch for matching any number of patterns; use one for each thread.
class PatternMatcher {
 public:
  PatternMatcher();
  PatternMatcher(const PatternMatcher&) = delete;
  PatternMatcher& operator=(const PatternMatcher&) = delete;

  // Finds the first match in `text` (well-formed UTF-8) that begins at `from` or later. Throws
  // Error if the pattern takes more steps than PCRE2's limit.
  bool find(const Pattern& pattern, std::string_view text, std::size_t from, PatternMatch& match);

 private:
  std::shared_ptr<pcre2_real_match_data_8> data_;
  std::shared_ptr<pcre2_real_match_context_8> context_;
  std::shared_ptr<pcre2_real_jit_stack_8> stack_;  // created on overflow
};

// The pattern in PCRE2's syntax: \s is Unicode's White_Space and \p{Han} a script, as in the other
// engines. Throws Error on constructs that PCRE2 would silently interpret differently, and if the
// pattern with its counted repeats expanded is longer than kMaxWrittenOut, because matching at each
// position of a text may take as many steps.
std::string pcre2_pattern(std::string_view pattern, std::string_view source);
// A pattern that matches exactly `literal`.
std::string quoted_pattern(std::string_view literal);

}  // namespace leq
