// Copies the codes of a quantized checkpoint into a .leq file without requantizing.
#pragma once

#include <optional>

#include "base/thread_pool.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/pipeline/quantize_tensor.h"

namespace leq {

// The tensor in the plan's scheme, with the codes and scales of its checkpoint, method "source" and
// no error: dequantizing gives the checkpoint's values. Returns nullopt if the plan names a method,
// or if the scheme cannot store every code exactly.
std::optional<QuantizedTensor> carry_codes(const TensorInput& tensor, const TensorPlan& plan,
                                           ThreadPool& pool);

}  // namespace leq
