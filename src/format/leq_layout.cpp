#include "format/leq_layout.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace leq {

LeqPreamble parse_preamble(std::span<const std::byte> bytes, std::uint64_t file_bytes,
                           std::string_view source) {
  LeqPreamble preamble = {};
  refuse_lfs_pointer(as_text(bytes.first(std::min(bytes.size(), kLfsPointerBytes))), source);
  require(bytes.size() >= sizeof preamble, source, ": expected a .leq file, found ", bytes.size(),
          " bytes, fewer than its preamble of ", sizeof preamble);
  std::memcpy(&preamble, bytes.data(), sizeof preamble);
  require(preamble.magic == kLeqMagic, source,
          ": expected a .leq file, but it does not begin with \\x89LEQ; convert a Hugging Face "
          "folder with leq-quantize");
  require(preamble.major_version == kLeqMajor, source, ": format version ", preamble.major_version,
          ", this leq reads version ", kLeqMajor, "; ",
          preamble.major_version > kLeqMajor ? "use a newer leq" : "convert the model again");
  require(preamble.file_bytes == file_bytes, source, ": the preamble says ", preamble.file_bytes,
          " bytes, the file has ", file_bytes, "; it was cut off or damaged, copy it again");
  require(preamble.json_offset >= sizeof preamble && preamble.json_offset <= file_bytes &&
              preamble.json_offset % kLeqAlignment == 0 &&
              preamble.json_bytes == file_bytes - preamble.json_offset,
          source, ": the JSON should end the file, found offset ", preamble.json_offset, " and ",
          preamble.json_bytes, " bytes in a file of ", file_bytes);
  require(preamble.json_bytes <= kHeaderLimits.bytes, source, ": JSON of ", preamble.json_bytes,
          " bytes, at most ", kHeaderLimits.bytes, " are accepted");
  return preamble;
}

std::uint64_t checksum(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string checksum_text(std::uint64_t value) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += kHex[value >> shift & 15];
  return text;
}

std::optional<std::uint64_t> parse_checksum(std::string_view text) {
  std::uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || end.ec != std::errc() || end.ptr != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace leq
