// How the numbers of one of leq's tensors are read out of a stored one, by its rule (family.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "format/tensor_source.h"
#include "models/family.h"
#include "quantize/methods/tensor_plan.h"

namespace leq {

// Source and tensor outlive what is read.
struct StoredRows {
  const TensorSource& source;
  const SourceTensor& tensor;
  TensorRule rule;
  std::shared_ptr<const ModelConfig> config;  // one for all tensors
  Shape shape;                                // of leq's tensor
  std::int64_t first_row = 0;                 // where the rule's rows begin
};

struct RowReaders {
  decltype(TensorInput::read) read;
  decltype(TensorInput::read_codes) read_codes = {};  // empty where the numbers are computed
  std::optional<QuantScheme> own_scheme = {};
};
RowReaders row_readers(StoredRows stored);

// [channels, 1, taps] of Gated DeltaNet's convolution.
Shape conv_shape(const ModelConfig& config);

}  // namespace leq
