// Any bytes as a tokenizer.json: a tokenizer that works, or an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "convert/hf_tokenizer.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const leq::HfTokenizer read = leq::read_hf_tokenizer(text, "fuzz.json");
    const leq::Tokenizer tokenizer(read.spec);
    const auto ids = tokenizer.encode("Hello w\xc3\xb6rld <s> 123\n\xff ab", {});
    (void)tokenizer.decode(ids, true);
  } catch (const leq::Error&) {
  }
  return 0;
}
