// One panel of 64 outputs times a block of tokens, for each instruction set. All sets give
// bit-identical results, for any number of tokens in a block (docs/numerics.md): integer sums are
// exact; float chains have lane k % 16 with k ascending, then add lanes 8, 4, 2, 1 apart. The
// header has only plain data, since files that are compiled for an instruction set include it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fetch.h"

namespace leq {
enum class Isa;
}

namespace leq::cpu {

// y[t][n] = sum over codes in the panel layout of tensor/weight_layout.h, scaled as in
// docs/numerics.md:
//   f = 0; for each group: f = fma(float(sum of the group), weight scale * token scale, f)
//   y = fma(f, weight scale * token scale, bias), or the plain product without a bias
// Group scales are in the first line and row scales in the second; a missing scale is 1. If neither
// side has groups, f is float(sum of the whole row).
struct IntPanel {
  // Weights: 64 outputs.
  const std::uint8_t* codes = nullptr;          // the panel's codes, 64-byte aligned
  const std::uint8_t* high_codes = nullptr;     // 3 bits: the panel's plane of third bits
  const float* row_scales = nullptr;            // [64], or null with groups
  const std::uint16_t* group_scales = nullptr;  // f16 [groups][64], or null without groups
  float scale_mul = 1.0f;                       // factor of each group scale
  const std::int32_t* row_sums = nullptr;       // [64] sums of 8-bit codes, if no side has groups
  const std::int16_t* group_sums = nullptr;     // [groups][64] sums of codes, if a side has groups
  // Unsigned codes (uint8, and all below 8 bits) represent code - zero point.
  const std::uint8_t* zeros = nullptr;  // [64] per group, zero_stride apart; or null
  std::int64_t zero_stride = 0;         // 64; 0 if a row has one zero point
  int zero = 0;                         // if zeros is null: the zero point of all codes
  const float* bias = nullptr;          // [64] or null
  std::int64_t columns = 0;             // multiple of 16; codes of padded columns have value 0
  int group = 0;                        // columns of an int32 sum: 32, 64, 128; 0: all
  int groups_a_token_scale = 0;         // groups that share a token scale; 0: one per row

  // Codes that will probably be read next, which a kernel may prefetch; or null and 0.
  const std::uint8_t* next_codes = nullptr;
  std::int64_t next_bytes = 0;
  Fetch fetch = Fetch::twice;  // best_fetch(); for codes of few tokens

  // Inputs of a block of tokens.
  std::int64_t tokens = 0;
  const std::uint8_t* inputs = nullptr;  // [tokens][input_stride]: q + 128 for int8 weights, else q
  std::int64_t input_stride = 0;
  const float* token_scales = nullptr;  // [tokens][token_scale_stride]
  std::int64_t token_scale_stride = 0;
  const std::int32_t* token_sums = nullptr;  // [tokens][token_sum_stride] per group (or one,
  std::int64_t token_sum_stride = 0;         // without groups); for unsigned codes only

  float* y = nullptr;  // [tokens][y_stride], 64 columns are written
  std::int64_t y_stride = 0;
  std::byte* scratch = nullptr;  // kIntScratchBytes, 64-byte aligned
};

inline constexpr std::size_t kIntScratchBytes = 224 * 1024;

// y[t][n] = sum over k of weights[n][k] * x[t][k] (+ bias[n]); float weights are row-major.
struct FloatBlock {
  const void* weights = nullptr;  // [outputs][weight_stride], f32, f16 or bf16
  std::int64_t weight_stride = 0;
  std::int64_t outputs = 0;
  std::int64_t columns = 0;     // any number above 0
  const float* bias = nullptr;  // [outputs], added to the finished sum; or null
  std::int64_t tokens = 0;
  const float* x = nullptr;  // [tokens][x_stride]
  std::int64_t x_stride = 0;
  float* y = nullptr;  // [tokens][y_stride]
  std::int64_t y_stride = 0;
  // If not null: [tokens][outputs][16] lanes with the chains' values, read at the start and written
  // at the end; y and bias are not used. columns is a multiple of 16 except in the last K tile.
  float* lanes = nullptr;
};

struct MatmulKernels {
  Isa isa{};
  void (*int8_rows)(const IntPanel& panel) noexcept = nullptr;    // group is 0
  void (*int8_groups)(const IntPanel& panel) noexcept = nullptr;  // group > 0
  void (*uint8_rows)(const IntPanel& panel) noexcept = nullptr;   // for unsigned codes
  void (*uint8_groups)(const IntPanel& panel) noexcept = nullptr;
  void (*bits4)(const IntPanel& panel) noexcept = nullptr;  // group > 0; int or uint
  void (*bits3)(const IntPanel& panel) noexcept = nullptr;
  void (*bits2)(const IntPanel& panel) noexcept = nullptr;
  void (*f32)(const FloatBlock& block) noexcept = nullptr;
  void (*f16)(const FloatBlock& block) noexcept = nullptr;
  void (*bf16)(const FloatBlock& block) noexcept = nullptr;
  const char* int_tile = "";  // tokens x outputs held in registers, for plans: "12x32"
  const char* float_tile = "";
};

// The kernel table of an instruction-set level; the processor must support it.
const MatmulKernels& matmul_kernels(Isa isa);

}  // namespace leq::cpu
