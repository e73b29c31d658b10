// Any bytes as quantized tensors of another rank: they are tensors or give an Error.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "quantize/run/quantize_tensor.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    (void)leq::tensors_of_bytes(std::as_bytes(std::span(data, size)));
  } catch (const leq::Error&) {
  }
  return 0;
}
