// The name and arguments of a tool call whose JSON object is still incomplete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace leq {

// The nesting depth within a JSON value that is streamed.
class JsonDepth {
 public:
  // Of the bytes from the value's first bracket on, those up to the one that closes it; all where
  // it is still open.
  std::size_t take(std::string_view text);
  bool closed() const { return closed_; }

 private:
  std::size_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, closed_ = false;
};

// The members that the beginning of {"name": ..., "arguments": {...}} has shown so far.
struct CallHead {
  enum class State : std::uint8_t {
    open,     // its name or its arguments are still to come
    bad,      // it is none
    streams,  // the arguments have begun
    whole     // the object is there to its end
  } state = State::open;
  std::string name = {};
  std::size_t arguments = 0;  // streams: where they begin
  std::size_t end = 0;        // whole: after the object
  std::string text = {};      // whole: the arguments
};
CallHead read_call_head(std::string_view text);

// The end of the JSON value at `at`; nullopt: it has none yet.
std::optional<std::size_t> json_value_end(std::string_view text, std::size_t at);
// nullopt where the text is no JSON.
std::optional<Json> json_of(std::string_view text);

}  // namespace leq
