// The one exception type of leq and the two ways to throw it.
// An error message is one line: what failed, where, what was expected and found, what to try.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace leq {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws Error with all parts streamed one after another.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  std::ostringstream message;
  (message << ... << parts);
  throw Error(message.str());
}

// require(shape == want, name, ": expected ", want, ", file has ", shape)
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(parts...);
}

}  // namespace leq
