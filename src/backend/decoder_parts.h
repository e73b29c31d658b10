// Arguments of a decoder's operations: norms, linears, the shape of attention. The letters of the
// shapes are defined in docs/glossary.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/weight_layout.h"

namespace leq {

enum class NormKind : std::uint8_t { rms, layer };

struct Norm {
  NormKind kind = NormKind::rms;
  const float* gain = nullptr;  // [W]
  const float* beta = nullptr;  // [W], for layer norm only
  float eps = 1e-5f;
  std::int64_t width = 0;  // W
};

// Weights that share one input (q, k, v; gate, up), used together without a copy. The outputs of
// segment i follow those of segment i-1.
struct LinearSegment {
  WeightView weight;            // [O_i][I]
  const float* bias = nullptr;  // [O_i]
};
struct Linear {
  std::vector<LinearSegment> segments;
  std::int64_t inputs = 0;   // I
  std::int64_t outputs = 0;  // O, the sum over the segments
  ActKind act = ActKind::none;
  float act_scale = 0;  // act tensor: the step between two codes
  OnlineMode online_mode = OnlineMode::safe;
  const float* inv_smooth = nullptr;  // [I], multiplies the inputs; null: no factors
  std::string name;                   // "layers.3.qkv", for errors and plans

  std::span<const LinearSegment> parts() const { return segments; }
};

// The function applied to y = x W^T + b.
enum class Epilogue : std::uint8_t {
  none,    // out = y
  add,     // out += y (the residual stream)
  swiglu,  // segments gate and up: out = silu(gate) * up, quantized as out's format says
  gelu,    // out = gelu_new(y), quantized as out's format says
};

struct RopeTable;

struct AttentionShape {
  int heads = 0;                 // H
  int kv_heads = 0;              // H_kv
  int head_dim = 0;              // d, even
  int window = 0;                // W: key j is visible to query i iff i - W < j <= i; 0: no limit
  const Norm* q_norm = nullptr;  // norm of each head (Qwen3), or null
  const Norm* k_norm = nullptr;
  bool rotary = true;
  int rotary_dims = 0;                // RoPE rotates the first rotary_dims numbers; 0: all
  bool output_gate = false;           // a row has H d gates after v: out * sigmoid(gate)
  bool tempered = false;              // q is multiplied by the RopeTable's query_factors
  const float* key_offset = nullptr;  // [H_kv d], subtracted from stored keys; null: none
  // If ranks share the heads of a model, a rank's heads may begin or end within a kv head:
  int group = 0;       // query heads of a kv head in the model; 0: H / H_kv
  int first_head = 0;  // index of this rank's first query head in its kv head's group
};

int rotary_dims(const AttentionShape& shape);  // with 0 replaced by head_dim
// Offset of the gates in a row, where they follow q, k and v: (H + 2 H_kv) d; and a row's width.
std::int64_t gates_at(const AttentionShape& shape);
std::int64_t qkv_width(const AttentionShape& shape);

// Gated DeltaNet of one layer. Token t has the inputs m_t [channels] (q, k, v of all heads),
// z_t [H_v d_v], b_t and a_t [H_v]. Computed in this order (orders of sums: docs/numerics.md):
//   c = silu(sum over j of conv[j] * m_{t - taps + 1 + j}), zeros before the first token
//   q = l2(q) / sqrt(d_k), k = l2(k) of each key head, l2(x) = x / sqrt(sum of x^2 + 1e-6)
//   beta = sigmoid(b), alpha = exp(-exp(a_log) * softplus(a + dt_bias))
//   S = alpha S; u = beta (v - S^T k); S = S + k u^T; o = S^T q, for each value head
//   out = rms_norm(o) * silu(z), where the norm is over each value head
struct DeltaShape {
  int key_heads = 0;               // H_k
  int value_heads = 0;             // H_v; value head h reads key head h / (H_v / H_k)
  int key_dim = 0;                 // d_k
  int value_dim = 0;               // d_v
  int taps = 0;                    // taps of the convolution
  const float* conv = nullptr;     // [taps][channels]
  const float* a_log = nullptr;    // [H_v]
  const float* dt_bias = nullptr;  // [H_v]
  Norm norm;                       // norm over each value head [d_v]
  std::size_t state_at = 0;        // byte offset of this layer's part of a state
  // If ranks share a model's heads: the numbers of heads of all ranks (0: those of this rank), and
  // this rank's first key head. conv, a_log, dt_bias, and rows of b and a are for all heads.
  int all_key_heads = 0, all_value_heads = 0, first_key_head = 0;

  std::int64_t keys() const { return std::int64_t{key_heads} * key_dim; }
  std::int64_t values() const { return std::int64_t{value_heads} * value_dim; }
  std::int64_t channels() const { return 2 * keys() + values(); }
  // The shape with the heads of all ranks.
  DeltaShape whole() const;
  int group() const;             // value heads per key head
  int first_value_head() const;  // index among all ranks' heads
};

// A layer's part of a state, in f32: S of each value head, followed by the last inputs of the
// convolution [taps - 1][channels], oldest first. S [d_k][d_v] is stored in blocks of 32 columns,
// [d_k][32] each; the last block is only as wide as the remaining columns.
inline constexpr int kDeltaColumns = 32;
std::int64_t delta_state_numbers(const DeltaShape& shape);

// The neighbouring query heads of this rank that read one kv head; there may be none.
struct QueryHeads {
  int first = 0, count = 0;
};
int query_group(const AttentionShape& shape);  // most query heads of one kv head
QueryHeads query_heads(const AttentionShape& shape, int kv_head);

// Rows of embedding tables: of tokens and, if positions are learned, of positions.
struct Embedding {
  const WeightView& tokens;  // [V][W]
  std::span<const std::int32_t> ids;
  const WeightView* positions = nullptr;  // [context][W]; null: no learned positions
  std::span<const std::int32_t> at = {};  // the position of each token
};

}  // namespace leq
