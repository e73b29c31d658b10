// How the numbers of one of leq's tensors are read out of a stored one, by its rule (family.h).
#pragma once

#include <cstdint>
#include <optional>

#include "format/tensor_source.h"
#include "models/family.h"
#include "quantize/methods/tensor_plan.h"

namespace leq {

// Source, tensor and rule outlive what is read; the rule's `first_row` is where its rows begin.
struct StoredRows {
  const TensorSource& source;
  const SourceTensor& tensor;
  const TensorRule& rule;
  const ModelConfig& config;
  const Shape& shape;  // of leq's tensor
  std::int64_t first_row = 0;
};

struct RowReaders {
  decltype(TensorInput::read) read;
  decltype(TensorInput::read_codes) read_codes = {};  // empty where the numbers are computed
  std::optional<QuantScheme> own_scheme = {};
};
RowReaders row_readers(const StoredRows& rows);

// [channels, 1, taps] of Gated DeltaNet's convolution.
Shape conv_shape(const ModelConfig& config);

}  // namespace leq
