// The f32 tensors of one block, or those outside the blocks, which folds and methods work
// on.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace leq {

struct Matrix {
  std::int64_t rows = 0;      // N; 1 for a vector
  std::int64_t columns = 0;   // K
  std::vector<float> values;  // [N][K]
};

// Tensors by their names within the block: "attention_norm", "q", "q.bias", "down.inv_smooth".
struct BlockTensors {
  std::map<std::string, Matrix, std::less<>> parts;

  bool has(std::string_view part) const { return parts.contains(part); }
  Matrix& at(std::string_view part) {
    const auto found = parts.find(part);
    ensure(found != parts.end(), "block: no tensor ", part);
    return found->second;
  }
  const Matrix& at(std::string_view part) const {
    return const_cast<BlockTensors*>(this)->at(part);
  }
};

}  // namespace leq
