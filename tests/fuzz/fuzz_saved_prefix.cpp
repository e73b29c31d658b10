// Any bytes as a file of saved prefixes. The first byte of an input selects how many checksums are
// set, so that inputs pass them: that of the header, and those of the first entries.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/saved_prefix.h"
#include "format/leq_layout.h"
#include "fuzz/seeded.h"

namespace {

using Bytes = std::vector<std::byte>;

void append(Bytes& bytes, const Bytes& more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

std::vector<std::string> examples() {
  leq::SavedPrefix prefix;
  prefix.tokens = {1, 2, 3};
  prefix.kv.resize(20);
  prefix.states = {{1, Bytes(4)}, {2, Bytes(4)}};
  Bytes bytes = leq::prefix_header_bytes({7, "CPU pages 1"});
  append(bytes, leq::prefix_entry_bytes(prefix));
  append(bytes, leq::prefix_entry_bytes({}));
  const std::string file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return {std::string(1, '\0') + file, "\x03" + file};
}

std::uint64_t number_at(const Bytes& bytes, std::size_t at) {
  std::uint64_t number = 0;
  if (at + sizeof number <= bytes.size()) std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

// Sets the checksum at `at` of the bytes that follow it up to `end`.
void seal(Bytes& bytes, std::size_t at, std::uint64_t end) {
  if (end > bytes.size() || end < at + 8) return;
  const auto checked = std::span(bytes).subspan(at + 8, static_cast<std::size_t>(end) - at - 8);
  const std::uint64_t sum = leq::checksum(checked);
  std::memcpy(bytes.data() + at, &sum, sizeof sum);
}

void repair(Bytes& bytes, int checksums) {
  std::uint64_t at = 32 + number_at(bytes, 24);
  if (checksums > 0 && at <= bytes.size()) seal(bytes, 8, at);
  for (int i = 1; i < checksums && at <= bytes.size(); ++i) {
    const auto first = static_cast<std::size_t>(at);
    const std::uint64_t states = number_at(bytes, first + 24);
    at += 40 + 4 * number_at(bytes, first + 8) + number_at(bytes, first + 16) +
          states * (8 + number_at(bytes, first + 32));
    if (at < first) return;
    seal(bytes, first, at);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto input = std::as_bytes(std::span(data + 1, size - 1));
  Bytes bytes(input.begin(), input.end());
  repair(bytes, data[0] % 4);
  try {
    const leq::PrefixReader reader(bytes, "fuzz");
    if (reader.reason_against(reader.owner()).empty()) {
      // Serializing the parsed content must give the whole file.
      Bytes again = leq::prefix_header_bytes(reader.owner());
      for (std::size_t i = 0; i < reader.size(); ++i) {
        append(again, leq::prefix_entry_bytes(reader.read(i)));
      }
      append(again, leq::prefix_entry_bytes({}));
      if (again != bytes) std::abort();
    }
  } catch (const leq::Error&) {
  }
  return 0;
}
