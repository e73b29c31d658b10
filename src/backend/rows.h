// Blocks of activations, and the format that the linear which reads a block needs.
#pragma once

#include <cstdint>

#include "backend/memory.h"
#include "backend/online_scale.h"
#include "tensor/quant_scheme.h"

namespace leq {

// The format of a block of rows, which the linear that reads it determines.
struct RowsFormat {
  bool values = true;           // keep the f32 values
  ActKind act = ActKind::none;  // if not none: int8 codes with scales are stored, too
  bool offset_codes = false;    // codes are stored as q + 128 (for int8 weights)
  int sum_group = 0;            // columns of one stored sum of codes (for unsigned weights)
  int terms = 0;                // 16-bit floats that form a number (f32 inputs of tensor cores)

  bool operator==(const RowsFormat&) const = default;
};

// A block of activations [T, W] on the device. Only backends access its memory.
struct Rows {
  std::int64_t capacity = 0;  // the largest T
  std::int64_t width = 0;     // W
  RowsFormat format;
  std::int64_t value_stride = 0, code_stride = 0, scale_stride = 0, sum_stride = 0;
  float* values = nullptr;        // [T][value_stride]
  std::uint8_t* codes = nullptr;  // [T][code_stride] in bytes: codes, or terms
  float* scales = nullptr;        // [T][scale_stride]: 1 or ceil128(W)/128 scales
  std::int32_t* sums = nullptr;   // [T][sum_stride]: sums of codes over sum_group columns
  Buffer memory;
};

// Parameters of the linear that reads the rows. They are not part of the block, because layers
// share blocks; the operation that writes the rows gets them.
struct RowsConsumer {
  float act_scale = 0;                // a stored scale: the step between two codes
  OnlineScale* online = nullptr;      // a moving scale; outlives the operation
  const float* inv_smooth = nullptr;  // [W], multiplied into the finished f32 row, or null
};

// A block to be written, with the parameters of the linear that will read it, if any.
struct RowsFor {
  Rows& rows;
  RowsConsumer consumer;

  RowsFor(Rows& block, const RowsConsumer& reader = {}) : rows(block), consumer(reader) {}
  operator const Rows&() const { return rows; }
};

}  // namespace leq
