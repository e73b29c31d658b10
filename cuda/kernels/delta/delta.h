// Gated DeltaNet on the device: backend/decoder_parts.h has its formulas, docs/numerics.md the
// order of each sum, which is the CPU's, token by token.
#pragma once

#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

struct DeltaArguments {
  FloatRows mixed;  // [T][channels + H_v d_v]: q, k, v, z
  FloatRows gates;  // [T][2 H_v]: b, a
  FloatRows out;    // [T][H_v d_v]
  AttentionBatch batch;
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, taps = 0;
  const float* conv = nullptr;     // [taps][channels]
  const float* a_log = nullptr;    // [H_v]
  const float* dt_bias = nullptr;  // [H_v]
  const float* norm_gain = nullptr;
  float norm_eps = 0;
  float l2_eps = 0, query_gain = 0, key_gain = 0;  // of the l2 norms as RMS norms
  std::int64_t state_at = 0;                       // bytes of a state before this layer's part
  // [T][channels] outputs of the convolution, of which v becomes o, then [T][2 H_v] alpha, beta.
  float* scratch = nullptr;
  Fault fault;

  constexpr std::int64_t keys() const { return std::int64_t{key_heads} * key_dim; }
  constexpr std::int64_t values() const { return std::int64_t{value_heads} * value_dim; }
  constexpr std::int64_t channels() const { return 2 * keys() + values(); }
  constexpr float* convolved(std::int64_t row) const { return scratch + row * channels(); }
  constexpr float* gates_of(std::int64_t row) const {
    return scratch + batch.tokens * channels() + row * 2 * value_heads;
  }
};
void launch_delta_net(const DeltaArguments& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
