// What the leader tells other ranks: any bytes are a command or an Error.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "model/rank_command.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)leq::decode_command(std::as_bytes(std::span(data, size)));
  } catch (const leq::Error&) {
  }
  return 0;
}
