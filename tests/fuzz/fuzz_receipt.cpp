// Any bytes as a receipt: a receipt that can be read must be written as a text that reads the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/receipt.h"
#include "fuzz/seeded.h"

namespace {

std::vector<std::string> examples() {
  leq::Receipt receipt;
  receipt.prompt = {1, 2, 3};
  receipt.tokens = {4, 5};
  receipt.digests = {0x0123456789abcdef};
  return std::vector<std::string>{leq::receipt_text(receipt)};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  try {
    const std::string written = leq::receipt_text(leq::parse_receipt(text, "fuzz"));
    if (leq::receipt_text(leq::parse_receipt(written, "fuzz")) != written) std::abort();
  } catch (const leq::Error&) {
  }
  return 0;
}
