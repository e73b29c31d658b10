#include "tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/spec.h"

namespace leq {
namespace {

constexpr std::size_t kJitStackBytes = 16u << 20;
// Unicode's White_Space; PCRE2's own \s also matches U+180E.
constexpr std::string_view kSpaces = "\\t-\\r\\x{85}\\p{Z}";

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 200> buffer = {};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// Whether \p{sc:NAME} is Script. Files mean it by \p{NAME} (Oniguruma), for which PCRE2 from 10.40
// on takes Script_Extensions; an older one takes Script and has no other name for it.
bool is_script(std::string_view name) {
  const std::string probe = "\\p{sc:" + std::string(name) + "}";
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(probe.data()), probe.size(), PCRE2_UTF, &error,
                    &offset, nullptr),
      pcre2_code_free);
  return code != nullptr;
}

// Computes the length of a pattern with its counted repeats expanded: "(ab{3}){10}" has 40. Classes
// and escapes count as one.
class WrittenOut {
 public:
  explicit WrittenOut(std::string_view pattern) : pattern_(pattern) {}

  std::uint64_t length() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        skip_escape();
      } else if (c == '[') {
        skip_class();
      } else if (c == '(') {
        open_.push_back(0);
        ++at_;
        continue;
      } else if (c == ')' && open_.size() > 1) {
        atom_ = open_.back();
        open_.pop_back();
        ++at_;
      } else {
        ++at_;
        atom_ = 1;
      }
      open_.back() = limited(open_.back() + limited(atom_ * count()));
    }
    std::uint64_t sum = 0;
    for (const std::uint64_t part : open_) sum = limited(sum + part);
    return sum;
  }

 private:
  // Limits a length, so that the product of two lengths cannot overflow.
  static std::uint64_t limited(std::uint64_t length) {
    return std::min<std::uint64_t>(length, kMaxWrittenOut + 1);
  }

  void skip_to(char end) {
    while (at_ < pattern_.size() && pattern_[at_] != end) ++at_;
    at_ = std::min(at_ + 1, pattern_.size());
  }

  // Skips an escape such as \d, \p{L} or \x{85}.
  void skip_escape() {
    const char letter = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    at_ = std::min(at_ + 2, pattern_.size());
    const bool named = std::string_view("pPxoNgku").find(letter) != std::string_view::npos;
    if (named && at_ < pattern_.size() && pattern_[at_] == '{') skip_to('}');
    atom_ = 1;
  }

  void skip_class() {
    ++at_;
    if (at_ < pattern_.size() && pattern_[at_] == '^') ++at_;
    if (at_ < pattern_.size() && pattern_[at_] == ']') ++at_;
    while (at_ < pattern_.size() && pattern_[at_] != ']') {
      at_ += pattern_[at_] == '\\' ? 2 : 1;
    }
    at_ = std::min(at_ + 1, pattern_.size());
    atom_ = 1;
  }

  // Skips a count such as "{3}", "{1,3}" or "{2,}"; returns its largest number, 1 without a count.
  std::uint64_t count() {
    if (at_ >= pattern_.size() || pattern_[at_] != '{') return 1;
    const std::size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return 1;
    std::uint64_t largest = 0;
    for (const auto word : split(pattern_.substr(at_ + 1, end - at_ - 1), ",")) {
      const auto number = parse_int(trim(word));
      if (!number && !trim(word).empty()) return 1;  // literal braces
      largest = std::max(largest,
                         static_cast<std::uint64_t>(std::max<std::int64_t>(number.value_or(0), 0)));
    }
    at_ = end + 1;
    return limited(largest);
  }

  std::string_view pattern_;
  std::size_t at_ = 0;
  std::uint64_t atom_ = 1;
  std::vector<std::uint64_t> open_ = {0};  // lengths of the open groups, outermost first
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, std::string_view source) {
  require(WrittenOut(pattern).length() <= kMaxWrittenOut, source, ": pattern \"",
          printable(pattern), "\" repeats too much: with its counts written out it is longer than ",
          kMaxWrittenOut);
  std::string out;
  bool in_class = false;
  std::size_t class_start = 0;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const char next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c == '\\' && next == 's') {
      out += in_class ? std::string(kSpaces) : "[" + std::string(kSpaces) + "]";
    } else if (c == '\\' && next == 'S' && !in_class) {
      out += "[^" + std::string(kSpaces) + "]";
    } else if (c == '\\' && i + 1 < pattern.size()) {
      out += {c, next};
      const std::string_view rest = pattern.substr(i + 2);
      const std::size_t start = rest.starts_with("{^") ? 2 : 1;
      if ((next == 'p' || next == 'P') && rest.starts_with('{') &&
          is_script(rest.substr(start, rest.find('}') - start))) {
        out += std::string(rest.substr(0, start)) + "sc:";
        i += start;
      }
    } else {
      const bool nested = in_class && (c == '[' || (c == '&' && next == '&'));
      if (nested) {
        fail(source, ": pattern \"", printable(pattern), "\" has a nested class at offset ", i,
             ", which is not supported; write '\\[' or '\\&' if the character is meant");
      }
      if (!in_class && c == '[') {
        in_class = true;
        class_start = next == '^' ? i + 2 : i + 1;
      } else if (in_class && c == ']' && i > class_start) {
        in_class = false;
      }
      out += c;
      continue;
    }
    ++i;
  }
  return out;
}

std::string quoted_pattern(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view("\\^$.[]|()?*+{}#&-").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

Pattern::Pattern(std::string_view pattern, std::string_view source)
    : text_(printable(pattern)), source_(source) {
  require(pattern.size() <= kMaxPatternBytes, source, ": pattern of ", pattern.size(),
          " bytes, at most ", kMaxPatternBytes, " are accepted");
  const auto bad = first_invalid_utf8(pattern);
  require(!bad, source, ": pattern \"", text_, "\" is invalid UTF-8 at offset ", bad.value_or(0));
  const std::string translated = pcre2_pattern(pattern, source);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr),
      pcre2_code_free);
  require(code_ != nullptr, source, ": pattern \"", text_, "\" is refused at offset ", offset, ": ",
          pcre2_message(error));
  jit_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
}

PatternMatcher::PatternMatcher()
    : data_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free),
      context_(pcre2_match_context_create(nullptr), pcre2_match_context_free) {
  require(data_ != nullptr && context_ != nullptr, ErrorKind::no_memory,
          "out of memory for matching patterns");
}
bool PatternMatcher::find(const Pattern& pattern, std::string_view text, std::size_t from,
                          PatternMatch& match) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const auto run = [&] {
    if (pattern.jit_) {
      return pcre2_jit_match(pattern.code_.get(), subject, text.size(), from, 0, data_.get(),
                             context_.get());
    }
    return pcre2_match(pattern.code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                       data_.get(), context_.get());
  };
  int found = run();
  if (found == PCRE2_ERROR_JIT_STACKLIMIT && stack_ == nullptr) {
    stack_.reset(pcre2_jit_stack_create(64 << 10, kJitStackBytes, nullptr), pcre2_jit_stack_free);
    require(stack_ != nullptr, ErrorKind::no_memory, "out of memory for matching patterns");
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    found = run();
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    fail(pattern.source_, ": pattern \"", pattern.text_, "\" cannot be matched at offset ", from,
         " of a text of ", text.size(), " bytes: ", pcre2_message(found));
  }
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_.get());
  match = {range[0], range[1]};
  return true;
}

}  // namespace leq
