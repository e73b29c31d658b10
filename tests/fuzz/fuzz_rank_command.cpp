// Any bytes as a command of the leader to other ranks: they are a command or give an Error.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "model/ranks.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)leq::decode_command(std::as_bytes(std::span(data, size)));
  } catch (const leq::Error&) {
  }
  return 0;
}
