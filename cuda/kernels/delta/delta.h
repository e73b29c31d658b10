// Gated DeltaNet and short convolutions on the device. Formulas are in backend/operations.h. Each
// sum has the CPU's order in docs/numerics.md: token by token. Unless `exact`, whole chunks of 64
// tokens of a prompt use the chunked form of Gated DeltaNet (delta_chunks.cu) instead.
#pragma once

#include "cuda/kernels/launch.h"
#include "cuda/layout/delta_scratch.h"

namespace leq::LEQ_GPU {

// The part of a chunk that does not depend on the state, for one value head. delta_chunks.cu
// defines the symbols.
struct DeltaChunk {
  float* inverse;     // T [64][64]
  float* outputs;     // P [64][64]
  float* from_start;  // e [64]
  float* to_end;      // D_63 [64]

  constexpr explicit DeltaChunk(float* numbers)
      : inverse(numbers),
        outputs(inverse + kDeltaChunk * kDeltaChunk),
        from_start(outputs + kDeltaChunk * kDeltaChunk),
        to_end(from_start + kDeltaChunk) {}
};

struct DeltaArguments {
  FloatRows mixed;  // [T][channels + H_v d_v]: q, k, v, z
  FloatRows gates;  // [T]: b [H_v]; a begins gate_stride numbers later
  std::int64_t gate_stride = 0;
  FloatRows out;  // [T][H_v d_v]
  AttentionBatch batch;
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, taps = 0;
  const float* conv[3] = {};  // for q, k and v: [taps] rows of conv_stride numbers
  std::int64_t conv_stride = 0;
  const float* a_log = nullptr;    // [H_v]
  const float* dt_bias = nullptr;  // [H_v]
  const float* norm_gain = nullptr;
  float norm_eps = 0;
  float l2_eps = 0, query_gain = 0, key_gain = 0;  // for l2 norms, computed as RMS norms
  std::int64_t state_at = 0;                       // byte offset of this layer's part of a state
  // [T][channels]: outputs of the convolution, in which o overwrites v; [T][2 H_v]: alpha and beta;
  // [chunks][H_v]: DeltaChunk (sizes: delta_scratch_numbers).
  float* scratch = nullptr;
  Fault fault;
  bool exact = false;
  OutputCodes codes;  // used if makes_codes(*this)

  constexpr std::int64_t keys() const { return std::int64_t{key_heads} * key_dim; }
  constexpr std::int64_t values() const { return std::int64_t{value_heads} * value_dim; }
  constexpr std::int64_t channels() const { return 2 * keys() + values(); }
  constexpr float* convolved(std::int64_t row) const { return scratch + row * channels(); }
  constexpr float* gates_of(std::int64_t row) const {
    return scratch + batch.tokens * channels() + row * 2 * value_heads;
  }
  constexpr std::int64_t query_of(int value_head) const {
    return std::int64_t{value_head / (value_heads / key_heads)} * key_dim;
  }
  constexpr std::int64_t value_of(int value_head) const {
    return 2 * keys() + std::int64_t{value_head} * value_dim;
  }
  // First rows of chunks are at least 64 apart, so that each chunk has its own index.
  constexpr DeltaChunk chunk(std::int64_t first_row, int value_head) const {
    const std::int64_t index = first_row / kDeltaChunk * value_heads + value_head;
    return DeltaChunk(scratch + delta_rows_numbers(batch.tokens, channels(), value_heads) +
                      index * kDeltaChunkNumbers);
  }
};
void launch_delta_net(const DeltaArguments& a, rt::Stream& stream);
// Returns whether the kernel itself quantizes the outputs, of which a warp has a head.
constexpr bool makes_codes(const DeltaArguments& a) { return a.value_dim % 128 == 0; }

struct ShortConvArguments {
  FloatRows mixed;  // [T][3 channels]: b, c, x
  FloatRows out;    // [T][channels]
  AttentionBatch batch;
  std::int64_t channels = 0;
  int taps = 0;
  const float* conv = nullptr;  // [taps] rows of conv_stride numbers
  std::int64_t conv_stride = 0;
  std::int64_t state_at = 0;  // byte offset of this layer's part of a state
  Fault fault;
  OutputCodes codes;
};
void launch_short_conv(const ShortConvArguments& a, rt::Stream& stream);

// The recurrence alone; runs that contain whole chunks use the chunked form.
bool has_delta_chunks(const DeltaArguments& a);
void launch_delta_chunks(const DeltaArguments& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
