// Results of finished steps in a folder, each under the hash of all that it depends on: what an
// interrupted comparison goes on from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"

namespace leq {

class ResultStore {
 public:
  // Makes the folder where it is not there. Throws Error where it cannot be.
  explicit ResultStore(std::filesystem::path folder);

  // The result kept under this identity; nullopt where there is none, or a damaged one.
  std::optional<Json> find(const Json& identity) const;
  // Appears whole or not at all.
  void keep(const Json& identity, const Json& result) const;

 private:
  std::filesystem::path path_of(const Json& identity) const;

  std::filesystem::path folder_;
};

// SHA-256 of an identity, 16 digits of it: short enough for a file's name.
std::string identity_hash(const Json& identity);

// Writes a small file complete or not at all.
void write_whole_file(const std::filesystem::path& path, std::string_view text);

}  // namespace leq
