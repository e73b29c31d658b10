// Reads and checks the JSON at the end of a .leq file: its tables of tensors and blobs.
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
  std::vector<StoredTensor> tensors;  // ordered by offset; views without pointers
  std::vector<StoredBlob> blobs;      // ordered by offset
};

// Moves the tables out of `json`, the parsed JSON of a file whose planes are in [64, data_end).
// Checks that every plane and blob is aligned, in bounds, has the size given by its scheme and
// shape, and does not overlap another. Throws Error naming `source` and the tensor.
LeqIndex take_index(Json& json, std::uint64_t data_end, std::string_view source);

}  // namespace leq
