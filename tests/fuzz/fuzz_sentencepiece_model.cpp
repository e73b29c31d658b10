// Any bytes as a sentencepiece tokenizer.model: a tokenizer that works, or an Error.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "convert/sentencepiece_model.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    const leq::Tokenizer tokenizer(leq::read_sentencepiece_model(bytes, "fuzz.model"));
    const auto ids = tokenizer.encode("Hello w\xc3\xb6rld <s> 123\n\xff ab", {});
    (void)tokenizer.decode(ids, true);
  } catch (const leq::Error&) {
  }
  return 0;
}
