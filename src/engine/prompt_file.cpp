#include "engine/prompt_file.h"

#include <array>
#include <cstring>

#include "backend/kv_types.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "format/leq_layout.h"

namespace leq {
namespace {

constexpr std::array<char, 8> kMagic = {'L', 'E', 'Q', 'P', 'R', 'M', '0', '1'};

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint64_t xxh3 = 0;
  std::uint64_t model = 0;
  std::uint32_t key_type = 0;
  std::uint32_t value_type = 0;
  std::uint64_t tokens = 0;
  std::uint64_t kv_bytes = 0;
};
static_assert(sizeof(Header) == 48);
constexpr std::size_t kUnchecked = offsetof(Header, model);  // bytes not covered by the checksum

KvType kv_type_of(std::uint32_t number, std::string_view source) {
  require(number < kKvSchemes.size(), source, ": KV type ", number, ", expected less than ",
          kKvSchemes.size(), "; the file is damaged or of a newer version, remove it");
  return static_cast<KvType>(number);
}

struct Parts {
  Header header;
  std::span<const std::byte> tokens, kv;
};

Parts read_parts(ByteReader& reader, std::string_view source) {
  Parts parts;
  parts.header = reader.read<Header>("the header of a saved prompt");
  require(parts.header.magic == kMagic, source,
          ": expected a saved prompt, but it does not begin with LEQPRM01; name another file");
  const std::uint64_t token_bytes = checked_multiply(parts.header.tokens, sizeof(Token), source);
  parts.tokens = reader.take(token_bytes, "the tokens");
  parts.kv = reader.take(parts.header.kv_bytes, "keys and values");
  return parts;
}

}  // namespace

std::vector<std::byte> prompt_file_bytes(const SavedPrompt& prompt) {
  Header header;
  header.model = prompt.owner.model;
  header.key_type = static_cast<std::uint32_t>(prompt.owner.key_type);
  header.value_type = static_cast<std::uint32_t>(prompt.owner.value_type);
  header.tokens = prompt.tokens.size();
  header.kv_bytes = prompt.kv.size();
  std::vector<std::byte> bytes(sizeof header);
  const auto tokens = std::as_bytes(std::span(prompt.tokens));
  bytes.insert(bytes.end(), tokens.begin(), tokens.end());
  bytes.insert(bytes.end(), prompt.kv.begin(), prompt.kv.end());
  std::memcpy(bytes.data(), &header, sizeof header);
  header.xxh3 = checksum(std::span(bytes).subspan(kUnchecked));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

SavedPrompt parse_prompt_file(std::span<const std::byte> bytes, std::string_view source) {
  ByteReader reader(bytes, source);
  const auto [header, tokens, kv] = read_parts(reader, source);
  require(reader.left() == 0, source, ": ", reader.left(), " bytes after its end at offset ",
          reader.offset(), "; the file is damaged, remove it");
  const std::uint64_t found = checksum(bytes.subspan(kUnchecked));
  require(found == header.xxh3, source, ": checksum: expected ", checksum_text(header.xxh3),
          ", found ", checksum_text(found), "; the file is damaged, remove it");
  SavedPrompt prompt;
  prompt.owner = {header.model, kv_type_of(header.key_type, source),
                  kv_type_of(header.value_type, source)};
  prompt.tokens.resize(static_cast<std::size_t>(header.tokens));
  if (!tokens.empty()) std::memcpy(prompt.tokens.data(), tokens.data(), tokens.size());
  prompt.kv.assign(kv.begin(), kv.end());
  return prompt;
}

std::vector<std::span<const std::byte>> split_prompt_files(std::span<const std::byte> bytes,
                                                           std::string_view source) {
  std::vector<std::span<const std::byte>> files;
  ByteReader reader(bytes, source);
  while (reader.left() > 0) {
    const std::size_t first = reader.offset();
    read_parts(reader, source);
    files.push_back(bytes.subspan(first, reader.offset() - first));
  }
  return files;
}

void write_prompt_file(const std::filesystem::path& path, const SavedPrompt& prompt) {
  AtomicFile file(path);
  file.append(prompt_file_bytes(prompt));
  file.commit();
}

SavedPrompt read_prompt_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_prompt_file(file.bytes(), file.name());
}

}  // namespace leq
