// Which scheme each tensor of a model gets, and who picks its codes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "model/model_config.h"
#include "model/tensor_list.h"
#include "quantize/method.h"
#include "tensor/pack.h"

namespace leq {

// How one tensor is stored.
struct TensorPlan {
  QuantScheme scheme;
  ActKind act = ActKind::none;
  const QuantMethod* method = nullptr;  // nullptr: the nearest codes (absmax)
  MethodOptions options = {};
};
// By a tensor's name, "layers.3.q", and what it is for.
using TensorPlanner = std::function<TensorPlan(const std::string& name, TensorRole role)>;

// Whether the inputs of quantized linears are quantized too.
enum class ActChoice : std::uint8_t {
  automatic,  // int8: per row for q, k, v, gate and up; per 128 columns for o, down and the head
  none,       // weights only
};

// Float types keep vectors and learned positions in f32. Integer types put the block linears in the
// scheme, embedding and head in int8 per row (a tied table is read as the head).
TensorPlan plan_tensor(TensorRole role, const QuantScheme& type, bool tied, ActChoice act);

// Whether a tensor is one of a block's linears.
bool is_block_linear(TensorRole role);

// Linears that read one input want it in one format. Throws Error naming two that do not agree.
void check_plan(const ModelConfig& config, const TensorPlanner& plan);

// One tensor to be quantized: rows of f32 on demand.
struct TensorInput {
  std::string name;
  Shape shape;  // [N, K] or [n]
  TensorRole role = TensorRole::vector;
  std::function<void(std::int64_t first, std::int64_t count, std::span<float> out)> read;
  std::function<void()> drop;  // may be empty
};

}  // namespace leq
