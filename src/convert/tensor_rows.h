// Readers that produce leq's tensors from stored ones by the rules of family.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "format/tensor_source.h"
#include "models/family.h"
#include "quantize/methods/tensor_plan.h"

namespace leq {

// Source and tensor must outlive the readers created from this.
struct StoredRows {
  const TensorSource& source;
  const SourceTensor& tensor;
  TensorRule rule;
  std::shared_ptr<const ModelConfig> config;  // one for all tensors
  Shape shape;                                // shape of leq's tensor
  std::int64_t first_row = 0;                 // the rule's first stored row
};

struct RowReaders {
  decltype(TensorInput::read) read;
  decltype(TensorInput::read_codes) read_codes = {};  // empty if the values must be computed
  std::optional<QuantScheme> own_scheme = {};
};
RowReaders row_readers(StoredRows stored);

// The stored shape [channels, 1, taps] of Gated DeltaNet's convolution.
Shape conv_shape(const ModelConfig& config);

}  // namespace leq
