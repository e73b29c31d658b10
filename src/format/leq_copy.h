// Writes a .leq file from stored tensors of other files without recomputing them; each checksum is
// verified during the copy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include <string>

#include "base/json.h"
#include "format/leq_reader.h"

namespace leq {

// The file from which a tensor of the copy is read; it must contain a tensor of that name.
using CopySource = std::function<const LeqReader&(const std::string& name)>;

// Writes `path`, which may be the file that `like` has open. The copy has the tensors of `like` in
// its order, each read from `source`, the blobs and requirements of `like`, and its metadata after
// `edit`. Returns the size of the file.
std::uint64_t write_copy(const std::filesystem::path& path, const LeqReader& like,
                         const CopySource& source, const std::function<void(Json& metadata)>& edit);

}  // namespace leq
