// Any bytes as the tables of a .leq file: a usable tokenizer, or an Error. The input is a list of
// tables in the order of kNames, each with a 32-bit length followed by its bytes.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "fuzz/seeded.h"
#include "tokenizer/small_specs.h"
#include "tokenizer/tokenizer.h"

namespace {

constexpr std::array<std::string_view, 7> kNames = {
    "tokenizer.header", "tokenizer.offsets", "tokenizer.bytes", "tokenizer.types",
    "tokenizer.lookup", "tokenizer.merges",  "tokenizer.scores"};

std::vector<std::string> examples() {
  std::vector<std::string> inputs;
  for (const leq::TokenizerSpec& spec : leq::test::small_specs()) {
    std::string input;
    for (const leq::NamedBlob& blob : leq::tokenizer_tables(spec)) {
      const auto size = static_cast<std::uint32_t>(blob.bytes.size());
      input.append(reinterpret_cast<const char*>(&size), sizeof(size));
      input.append(reinterpret_cast<const char*>(blob.bytes.data()), size);
    }
    inputs.push_back(input);
  }
  return inputs;
}

// Each table is copied, so that it is aligned as in a file and reads beyond its end are detected.
std::vector<std::vector<std::byte>> cut_tables(std::span<const std::byte> input) {
  std::vector<std::vector<std::byte>> tables;
  while (input.size() >= 4 && tables.size() < kNames.size()) {
    std::uint32_t size = 0;
    std::memcpy(&size, input.data(), 4);
    input = input.subspan(4);
    const auto part = input.first(size < input.size() ? size : input.size());
    tables.emplace_back(part.begin(), part.end());
    input = input.subspan(part.size());
  }
  return tables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto tables = cut_tables(std::as_bytes(std::span(data, size)));
  const leq::BlobFinder find =
      [&](std::string_view name) -> std::optional<std::span<const std::byte>> {
    for (std::size_t i = 0; i < tables.size(); ++i) {
      if (kNames[i] == name) return std::span<const std::byte>(tables[i]);
    }
    return std::nullopt;
  };
  try {
    const leq::Tokenizer tokenizer(find, "fuzz.leq");
    const auto ids = tokenizer.encode("the hello \xc3\xa9 <s>in<end> 123\n\xff ab", {});
    (void)tokenizer.decode(ids, true);
    leq::StreamDecoder stream(tokenizer, true);
    for (const leq::Token id : ids) (void)stream.push(id);
    (void)stream.finish();
  } catch (const leq::Error&) {
  }
  return 0;
}
