// Blocks of activations, and the format in which the linear that reads one expects it.
#pragma once

#include <cstdint>

#include "backend/memory.h"
#include "backend/online_scale.h"
#include "tensor/act_kind.h"

namespace leq {

// The format of a block of rows, for the linear that reads it.
struct RowsFormat {
  bool values = true;           // keep f32
  ActKind act = ActKind::none;  // keep int8 codes with scales
  bool offset_codes = false;    // codes stored as q + 128 (consumers with int8 weights)
  int sum_group = 0;            // columns of one stored code sum (consumers with unsigned weights)
  int terms = 0;                // 16-bit floats that make a number (f32 inputs of tensor cores)

  bool operator==(const RowsFormat&) const = default;
};

// A block of activations [T, W] on the device. Opaque to callers: only backends look inside.
struct Rows {
  std::int64_t capacity = 0;  // largest T
  std::int64_t width = 0;     // W
  RowsFormat format;
  std::int64_t value_stride = 0, code_stride = 0, scale_stride = 0, sum_stride = 0;
  float* values = nullptr;        // [T][value_stride]
  std::uint8_t* codes = nullptr;  // [T][code_stride], in bytes; or the terms of format
  float* scales = nullptr;        // [T][scale_stride]: 1 or ceil128(W)/128 scales
  std::int32_t* sums = nullptr;   // [T][sum_stride]: sums of codes over sum_group columns
  Buffer memory;
};

// Parameters of the linear that reads the rows, beside their format: blocks are shared by layers,
// so the operation that writes them gets these.
struct RowsConsumer {
  float act_scale = 0;                // a stored scale: the step between two codes
  OnlineScale* online = nullptr;      // a moving scale; outlives the operation
  const float* inv_smooth = nullptr;  // [W]: multiplied into the finished f32 row, null: nothing is
};

// A block to be written, and the linear that will read it, if any.
struct RowsFor {
  Rows& rows;
  RowsConsumer consumer;

  RowsFor(Rows& block, const RowsConsumer& reader = {}) : rows(block), consumer(reader) {}
  operator const Rows&() const { return rows; }
};

}  // namespace leq
