// Writes a .leq file from a model's tensors: which scheme each tensor gets, who picks the codes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "format/leq_writer.h"
#include "model/tensor_list.h"
#include "tensor/pack.h"

namespace leq {

// How one tensor is stored.
struct TensorPlan {
  QuantScheme scheme;
  ActKind act = ActKind::none;
};

// Whether the inputs of quantized linears are quantized too.
enum class ActChoice : std::uint8_t {
  automatic,  // int8: per row for q, k, v, gate and up; per 128 columns for o, down and the head
  none,       // weights only
};

// Float types keep vectors and learned positions in f32. Integer types put the block linears in the
// scheme, embedding and head in int8 per row (a tied table is read as the head).
TensorPlan plan_tensor(TensorRole role, const QuantScheme& type, bool tied, ActChoice act);

// One tensor to be quantized: rows of f32 on demand.
struct TensorInput {
  std::string name;
  Shape shape;  // [N, K] or [n]
  TensorRole role = TensorRole::vector;
  std::function<void(std::int64_t first, std::int64_t count, std::span<float> out)> read;
  std::function<void()> drop;  // may be empty
};

struct QuantizeOptions {
  QuantScheme type;
  ActChoice act = ActChoice::automatic;
  bool tied = false;
  int threads = 0;  // 0 = one for each usable core
};

struct QuantizeResult {
  std::uint64_t tensor_bytes = 0;
  double worst_error = 0;  // relative squared error
  std::string worst_tensor;
};

// Quantizes by the nearest code (method absmax) and writes tensor by tensor; at no time is more
// than one tensor in memory. `progress(done, total)` counts tensors. Throws Error naming a value
// that is not finite.
QuantizeResult write_tensors(LeqWriter& writer, std::span<const TensorInput> tensors,
                             const QuantizeOptions& options,
                             const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace leq
