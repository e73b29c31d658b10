// The JSON at the end of a .leq file: its tables of tensors and blobs, read and checked.
#pragma once

#include <cstdint>

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "format/leq_reader.h"

namespace leq {

struct StoredBlob {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t xxh3 = 0;
};

struct LeqIndex {
  std::vector<StoredTensor> tensors;  // in the order of their bytes; views without pointers
  std::vector<StoredBlob> blobs;      // in the order of their bytes
};

// Moves the tables out of `json`, the parsed text of a file whose planes are in [64, data_end).
// Checks that every plane and blob is aligned, in bounds, of the size given by its scheme and
// shape, and overlaps no other. Throws Error naming `source` and the tensor.
LeqIndex take_index(Json& json, std::uint64_t data_end, std::string_view source);

}  // namespace leq
