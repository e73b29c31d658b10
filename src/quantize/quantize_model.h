// Writes a .leq file from a model's tensors: which scheme each tensor gets, who picks the codes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "format/tensor_source.h"
#include "model/model_config.h"
#include "tensor/pack.h"

namespace leq {

// How one tensor is stored.
struct TensorPlan {
  QuantScheme scheme;
  ActKind act = ActKind::none;
};

// The plan of decisions 1 and 4: floats keep f32 for vectors and learned positions; int types put
// the block linears in the scheme, embedding and head in int8 per row; activations per row for qkv
// and gate/up, per 128 columns for o, down and the head.
TensorPlan plan_tensor(const std::string& leq_name, const Shape& shape, const QuantScheme& type,
                       const ModelConfig& config);

}  // namespace leq
