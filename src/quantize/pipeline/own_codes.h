// The codes that a checkpoint itself has, carried over into a file of leq.
#pragma once

#include <optional>

#include "base/thread_pool.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/pipeline/quantize_tensor.h"

namespace leq {

// The tensor in the plan's scheme with the codes and scales of its checkpoint, method "source" and
// no error: what is read back is the checkpoint's numbers. nullopt where the plan names a method,
// or the scheme does not hold every code exactly.
std::optional<QuantizedTensor> carry_codes(const TensorInput& tensor, const TensorPlan& plan,
                                           ThreadPool& pool);

}  // namespace leq
