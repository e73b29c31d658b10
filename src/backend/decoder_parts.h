// What the operations of a decoder compute with: norms, linears, the shape of attention. The
// letters of the shapes stand in docs/glossary.md.
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
  const float* beta = nullptr;  // [W], layer norm only
  float eps = 1e-5f;
  std::int64_t width = 0;  // W
};

// Weights that share one input (q,k,v; gate,up), joined without a copy. The outputs of segment i
// follow those of segment i-1.
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
  const float* inv_smooth = nullptr;  // [I]: inputs are multiplied by it; null: as they are
  std::string name;                   // "layers.3.qkv", for errors and plans

  std::span<const LinearSegment> parts() const { return segments; }
};

// What happens to y = x W^T + b on its way out.
enum class Epilogue : std::uint8_t {
  none,    // out = y
  add,     // out += y (the residual stream)
  swiglu,  // segments gate and up: out = silu(gate) * up, quantized as out's format says
  gelu,    // out = gelu_new(y), quantized as out's format says
};

struct RopeTable;

struct AttentionShape {
  int heads = 0;     // H
  int kv_heads = 0;  // H_kv
  int head_dim = 0;  // d, even
  int window = 0;    // W: key j is visible to query i iff i - W < j <= i; 0 = all before
  const Norm* q_norm = nullptr;  // over each head, Qwen3
  const Norm* k_norm = nullptr;
  bool rotary = true;
  const float* key_offset = nullptr;  // [H_kv d] keys are stored less it; null: as they are
  // By what keys are turned that were coded before RoPE; null: they are coded after it.
  const RopeTable* key_rope = nullptr;
  // Where ranks share the heads of a model, those of one rank need not begin or end with a kv head:
  int group = 0;       // query heads of a kv head in the model; 0: H / H_kv
  int first_head = 0;  // of the first kv head's group, which query head is the first here
};

// The query heads here that read one kv head: neighbours, perhaps none.
struct QueryHeads {
  int first = 0, count = 0;
};
int query_group(const AttentionShape& shape);  // most query heads of one kv head
QueryHeads query_heads(const AttentionShape& shape, int kv_head);

// Rows of tables: the tokens' own, and where positions are learned those of their positions.
struct Embedding {
  const WeightView& tokens;  // [V][W]
  std::span<const std::int32_t> ids;
  const WeightView* positions = nullptr;  // [context][W]; null: no learned positions
  std::span<const std::int32_t> at = {};  // the position of each token
};

}  // namespace leq
