// The conditions that end a reply: end tokens, stop strings and limits. Stop strings are searched
// in text that arrives in pieces; text that may still become a stop string is withheld.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizer/spec.h"

namespace leq {

enum class StopReason : std::uint8_t {
  none,          // the reply continues
  end_token,     // the model drew an end token
  stop_string,   // a stop string was written
  token_limit,   // max_tokens was reached
  context_full,  // the context has no free position
  interrupted,   // stopped by the user or the caller
  failed,        // no token could be drawn
};

// For reports, such as "the model ended its reply".
std::string_view describe(StopReason reason);
// For programs, such as "end_token".
std::string_view stop_name(StopReason reason);

struct StopRules {
  std::vector<Token> end_tokens;     // from generation_config and the chat template
  std::vector<std::string> strings;  // empty strings are ignored
  std::int64_t max_tokens = -1;      // -1: no limit

  bool is_end_token(Token id) const {
    return std::find(end_tokens.begin(), end_tokens.end(), id) != end_tokens.end();
  }
};

// The stop string that is completed first ends the text; if several are completed at the same byte,
// the longest one counts. The result does not depend on how the text is split into pieces.
class StopStringFinder {
 public:
  explicit StopStringFinder(std::vector<std::string> strings);

  // Adds `text` and returns the text that is certainly part of the reply. Never returns anything
  // from the first byte of a stop string on; text after a stop string is ignored.
  std::string push(std::string_view text);
  // Returns the withheld text at the end of the reply; empty if a stop string was found.
  std::string finish() { return std::exchange(held_, {}); }

  bool found() const { return found_ != kNone; }
  // The stop string that was found; empty if none was.
  std::string_view found_string() const {
    return found() ? std::string_view(strings_[found_]) : std::string_view();
  }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  // Length of the longest suffix of held_ that is the beginning of a stop string.
  std::size_t open_tail() const;

  std::vector<std::string> strings_;
  std::string held_;
  std::size_t found_ = kNone;
};

}  // namespace leq
