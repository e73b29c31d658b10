// Any bytes as a saved prompt. If the first byte of an input is 0, the rest is a whole file.
// Otherwise the rest is the content after the checksum, which is added so that inputs pass it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/prompt_file.h"
#include "format/leq_layout.h"
#include "fuzz/seeded.h"

namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> examples() {
  leq::SavedPrompt prompt;
  prompt.tokens = {1, 2, 3};
  prompt.kv.resize(20);
  const std::vector<std::byte> bytes = leq::prompt_file_bytes(prompt);
  return std::vector<std::string>{std::string(1, '\0') + text_of(bytes),
                                  "\x01" + text_of(std::span(bytes).subspan(16))};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data + 1, size - 1));
  std::vector<std::byte> bytes;
  if (data[0] != 0) {
    const std::uint64_t sum = leq::checksum(input);
    bytes.resize(16);
    std::memcpy(bytes.data(), "LEQPRM01", 8);
    std::memcpy(bytes.data() + 8, &sum, sizeof sum);
  }
  bytes.insert(bytes.end(), input.begin(), input.end());
  try {
    // Serializing the parsed content must give the whole file.
    if (leq::prompt_file_bytes(leq::parse_prompt_file(bytes, "fuzz")) != bytes) std::abort();
  } catch (const leq::Error&) {
  }
  try {
    std::size_t size_of_parts = 0;
    for (const auto part : leq::split_prompt_files(bytes, "fuzz")) size_of_parts += part.size();
    if (size_of_parts != bytes.size()) std::abort();
  } catch (const leq::Error&) {
  }
  return 0;
}
