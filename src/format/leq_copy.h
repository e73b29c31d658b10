// Writes a .leq file from the stored tensors of others, without recomputation; every checksum is
// verified on the way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include <string>

#include "base/json.h"
#include "format/leq_reader.h"

namespace leq {

// The file from which a tensor of the copy is read; it must have a tensor of that name.
using CopySource = std::function<const LeqReader&(const std::string& name)>;

// Writes `path`, which may be the file that `like` has open: tensors in the order of `like`, each
// from `source`; the blobs and requirements of `like`, and its metadata changed by `edit`. Returns
// the size of the file.
std::uint64_t write_copy(const std::filesystem::path& path, const LeqReader& like,
                         const CopySource& source, const std::function<void(Json& metadata)>& edit);

}  // namespace leq
