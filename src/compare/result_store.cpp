#include "compare/result_store.h"

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::uint64_t kLargestResult = 64 << 20;

}  // namespace

std::string identity_hash(const Json& identity) {
  return sha256_hex(identity.dump()).substr(0, 16);
}

void write_whole_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.append(std::as_bytes(std::span(text.data(), text.size())));
  file.commit();
}

ResultStore::ResultStore(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  require(!error, ErrorKind::io, folder_.string(), ": cannot be made: ", error.message());
}

std::filesystem::path ResultStore::path_of(const Json& identity) const {
  return folder_ / (identity_hash(identity) + ".json");
}

std::optional<Json> ResultStore::find(const Json& identity) const {
  const std::filesystem::path path = path_of(identity);
  if (!file_exists(path)) return std::nullopt;
  try {
    const Json kept = parse_json(read_file(path, kLargestResult), path.string());
    // Other identities may have the same 16 digits; a file of another version may lack a key.
    if (kept.at("identity") == identity) return kept.at("result");
  } catch (const Error&) {  // an invalid file is measured again
  }
  return std::nullopt;
}

void ResultStore::keep(const Json& identity, const Json& result) const {
  const Json kept = {{"identity", identity}, {"result", result}};
  write_whole_file(path_of(identity), kept.dump() + "\n");
}

}  // namespace leq
