// One panel of 64 outputs times a block of tokens, for each instruction set. Results are equal bit
// for bit across instruction sets, for any number of tokens in a block (docs/numerics.md): integer
// sums are exact, float chains run over lane k % 16 with k ascending, then lanes +8, +4, +2, +1.
// Instruction-set files include this header, so it holds plain data only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fetch.h"

namespace leq {
enum class Isa;
}

namespace leq::cpu {

// y[t][n] = sum of codes by the panel layout of tensor/weight_layout.h, scaled as docs/numerics.md
// says:
//   f = 0; for each group: f = fma(float(sum of the group), weight scale * token scale, f)
//   y = fma(f, weight scale * token scale, bias), a plain product where there is no bias
// with each scale in the line it belongs to (a group's or the row's) and 1 in the other. Where
// neither side is grouped, f is float(sum of the whole row).
struct IntPanel {
  // Weights: 64 outputs.
  const std::uint8_t* codes = nullptr;          // of the panel, 64-byte aligned
  const std::uint8_t* high_codes = nullptr;     // 3 bits: of the panel's plane of the third bit
  const float* row_scales = nullptr;            // [64], or null where grouped
  const std::uint16_t* group_scales = nullptr;  // f16 [groups][64], or null where by row
  float scale_mul = 1.0f;                       // times each group scale
  const std::int32_t* row_sums = nullptr;    // [64] sums of 8-bit codes, where nothing is grouped
  const std::int16_t* group_sums = nullptr;  // [groups][64] the same, where something is
  // Unsigned codes (uint8 and all below 8 bits) count as code - zero point.
  const std::uint8_t* zeros = nullptr;  // [64] for each group, zero_stride apart; or null:
  std::int64_t zero_stride = 0;         // 64, or 0 where a zero point is a row's
  int zero = 0;                         // ... the one zero point of all codes
  const float* bias = nullptr;          // [64] or null
  std::int64_t columns = 0;      // multiple of 16; codes of columns past the real ones have value 0
  int group = 0;                 // columns of one int32 sum: 32, 64, 128, or 0 = all
  int groups_a_token_scale = 0;  // groups that share a token scale; 0 = one scale for the row

  // Codes that will be wanted next, which a kernel may fetch; or null and 0.
  const std::uint8_t* next_codes = nullptr;
  std::int64_t next_bytes = 0;
  Fetch fetch = Fetch::twice;  // of best_fetch(): codes of few tokens

  // Tokens.
  std::int64_t tokens = 0;
  const std::uint8_t* inputs = nullptr;  // [tokens][input_stride]: q + 128 for int8 weights, else q
  std::int64_t input_stride = 0;
  const float* token_scales = nullptr;  // [tokens][token_scale_stride]
  std::int64_t token_scale_stride = 0;
  const std::int32_t* token_sums = nullptr;  // [tokens][token_sum_stride], one for each group (one
  std::int64_t token_sum_stride = 0;         // where nothing is grouped); unsigned codes only

  float* y = nullptr;  // [tokens][y_stride], 64 columns are written
  std::int64_t y_stride = 0;
  std::byte* scratch = nullptr;  // kIntScratchBytes, 64-byte aligned
};

inline constexpr std::size_t kIntScratchBytes = 224 * 1024;

// y[t][n] = sum over k of weights[n][k] * x[t][k] (+ bias[n]), float weights row-major.
struct FloatBlock {
  const void* weights = nullptr;  // [outputs][weight_stride], f32, f16 or bf16
  std::int64_t weight_stride = 0;
  std::int64_t outputs = 0;
  std::int64_t columns = 0;     // any number > 0
  const float* bias = nullptr;  // [outputs] or null: added to the finished sum
  std::int64_t tokens = 0;
  const float* x = nullptr;  // [tokens][x_stride]
  std::int64_t x_stride = 0;
  float* y = nullptr;  // [tokens][y_stride]
  std::int64_t y_stride = 0;
  // Where not null: [tokens][outputs][16] lanes that the chains start from and end in; y and bias
  // are not used, and columns is a multiple of 16 or the chain's last K tile.
  float* lanes = nullptr;
};

struct MatmulKernels {
  Isa isa{};
  void (*int8_rows)(const IntPanel& panel) noexcept = nullptr;    // group = 0
  void (*int8_groups)(const IntPanel& panel) noexcept = nullptr;  // group > 0
  void (*uint8_rows)(const IntPanel& panel) noexcept = nullptr;   // the same, unsigned
  void (*uint8_groups)(const IntPanel& panel) noexcept = nullptr;
  void (*bits4)(const IntPanel& panel) noexcept = nullptr;  // group > 0, int or uint
  void (*bits3)(const IntPanel& panel) noexcept = nullptr;
  void (*bits2)(const IntPanel& panel) noexcept = nullptr;
  void (*f32)(const FloatBlock& block) noexcept = nullptr;
  void (*f16)(const FloatBlock& block) noexcept = nullptr;
  void (*bf16)(const FloatBlock& block) noexcept = nullptr;
  const char* int_tile = "";  // tokens x outputs held in registers, for plans: "12x32"
  const char* float_tile = "";
};

// The table of a level that this processor supports.
const MatmulKernels& matmul_kernels(Isa isa);

}  // namespace leq::cpu
