// Any bytes as a vocabulary in older files: a usable tokenizer, or an Error. Two texts with an
// empty line between them are vocab.json and merges.txt; others are a rank file of tiktoken.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "convert/tokenizer_parts.h"
#include "fuzz/seeded.h"
#include "tokenizer/tokenizer.h"

namespace {

std::vector<std::string> examples() {
  return {"{\"a\":0,\"b\":1,\"ab\":2,\"l\":3,\"ll\":4,\"\xc4\xa0\":5}\n\n#version: 0.2\na b\nl l\n",
          "YQ== 0\nYg== 1\nYWI= 2\nbA== 3\nbGw= 4\n"};
}

leq::TokenizerSpec read(std::string_view text) {
  const std::size_t gap = text.find("\n\n");
  if (gap == std::string_view::npos) return leq::read_rank_file(text, "fuzz", "gpt-2");
  leq::TokenizerSpec spec =
      leq::read_vocab_merges(text.substr(0, gap), "vocab", text.substr(gap + 2), "merges");
  leq::set_pretokenizer(spec, "gpt-2");
  return spec;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const leq::Tokenizer tokenizer(read({reinterpret_cast<const char*>(data), size}));
    const auto ids = tokenizer.encode("Hello w\xc3\xb6rld <s> 123\n\xff ab", {});
    (void)tokenizer.decode(ids, true);
  } catch (const leq::Error&) {
  }
  return 0;
}
