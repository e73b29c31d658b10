// Any bytes as a sentencepiece tokenizer.model: a usable tokenizer, or an Error.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "convert/sentencepiece_model.h"
#include "fuzz/seeded.h"
#include "tokenizer/protobuf_writer.h"
#include "tokenizer/tokenizer.h"

namespace {

std::vector<std::string> examples() {
  using leq::test::SpType;
  std::vector<std::string> models;
  for (const std::uint64_t type : {1u, 2u}) {
    auto model = leq::test::start_sp_model(type);
    add_sp_piece(model, "ll", -1, SpType::normal);
    add_sp_piece(model, "l", -2, SpType::normal);
    add_sp_piece(model, "123", 0, SpType::user_defined);
    add_sp_piece(model, "<0xC3>", 0, SpType::byte);
    models.push_back(model.out);
  }
  return models;
}

}  // namespace

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
