// The name and arguments of a tool call whose JSON object is still incomplete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace leq {

// Tracks the nesting depth within a JSON value that is streamed.
class JsonDepth {
 public:
  // `text` begins at the value's first bracket or later. Returns the number of bytes up to and
  // including the closing bracket, or all bytes if the value is still open.
  std::size_t take(std::string_view text);
  bool closed() const { return closed_; }

 private:
  std::size_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, closed_ = false;
};

// The members of {"name": ..., "arguments": {...}}, as far as the text so far contains them.
struct CallHead {
  enum class State : std::uint8_t {
    open,     // the name or the arguments are still incomplete
    bad,      // the text is not a call
    streams,  // the arguments have begun
    whole     // the object is complete
  } state = State::open;
  std::string name = {};
  std::size_t arguments = 0;  // streams: offset of the arguments
  std::size_t end = 0;        // whole: offset after the object
  std::string text = {};      // whole: the arguments
};
CallHead read_call_head(std::string_view text);

// The end of the JSON value at `at`; nullopt if the value is incomplete.
std::optional<std::size_t> json_value_end(std::string_view text, std::size_t at);
// Returns nullopt if the text is not JSON.
std::optional<Json> json_of(std::string_view text);

}  // namespace leq
