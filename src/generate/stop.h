// What ends a reply: end tokens, stop strings, and limits. Stop strings are found in text that
// comes in pieces; text that may still become one is held back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/spec.h"

namespace leq {

enum class StopReason : std::uint8_t {
  none,          // the reply goes on
  end_token,     // the model ended it
  stop_string,   // a stop string was written
  token_limit,   // as many tokens as asked for
  context_full,  // no room for another position
  interrupted,   // the user or the caller asked for it
  failed,        // no token could be drawn
};

// "the model ended its reply", for reports.
std::string_view describe(StopReason reason);
// "end_token", for programs.
std::string_view stop_name(StopReason reason);

struct StopRules {
  std::vector<Token> end_tokens;     // several: generation_config's and the chat template's
  std::vector<std::string> strings;  // empty strings are ignored
  std::int64_t max_tokens = -1;      // -1: no limit

  bool is_end_token(Token id) const;
};

// The stop string that is complete first ends the text; of several that are complete at the same
// byte it is the longest. The result does not depend on how the text is cut into pieces.
class StopStringFinder {
 public:
  explicit StopStringFinder(std::vector<std::string> strings);

  // The text that is certainly part of the reply after `text` was added. Nothing from the first
  // byte of a stop string on is ever returned, and nothing after it is found.
  std::string push(std::string_view text);
  // What was held back, at the end of the reply; empty where a stop string was found.
  std::string finish();

  bool found() const { return found_ != kNone; }
  // The stop string that was found; empty if none was.
  std::string_view found_string() const;

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  // Length of the longest tail of held_ that begins a stop string.
  std::size_t open_tail() const;

  std::vector<std::string> strings_;
  std::string held_;
  std::size_t found_ = kNone;
};

}  // namespace leq
