// The kernels for an integer matmul; int_matmul.cu selects one of them.
#pragma once

#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

// Calls launch.template operator()<bits>() for the choice that equals `bits`, or for the last one.
template <int choice, int... others, class Launch>
void launch_for(int bits, Launch launch) {
  if constexpr (sizeof...(others) > 0) {
    if (bits != choice) return launch_for<others...>(bits, launch);
  }
  launch.template operator()<choice>();
}
template <class Launch>
void launch_by_bits(int bits, Launch launch) {
  launch_for<2, 3, 4, 8>(bits, launch);
}

// The same, and calls launch.template operator()<kTableBits>() for codes with a table.
template <class Launch>
void launch_by_codes(const CodeWeight& weight, Launch launch) {
  if (weight.has_table) return launch.template operator()<kTableBits>();
  launch_by_bits(weight.bits, launch);
}

// The outputs of all segments, if gated of gate and up.
template <class Arguments>
std::int64_t outputs_of(const Arguments& a) {
  std::int64_t outputs = 0;
  for (int i = 0; i < a.segment_count; ++i) outputs += a.segments[i].rows;
  return outputs;
}

// For one token, or for up to 8 tokens (16 if there are few outputs) if groups have 128 columns.
bool has_int_gemv(const IntMatmul& a);
// Returns whether int_gemv uses tensor cores: for groups of 128 columns and at least two tokens.
bool has_int_gemv_tokens(const IntMatmul& a);
void launch_int_gemv(const IntMatmul& a, rt::Stream& stream);

// Tokens x outputs of a tile: 16 or 32 x 16, 16 x 64, 64 x 64, 128 x 128. Groups of 32 and 64
// columns have only `middle`. All kernels add in one order: the choice of a tile changes no bit.
enum class GemmTile : std::uint8_t { few, small, middle, large };
// Large tiles minimize reads, but each multiprocessor should have at least about one tile.
GemmTile gemm_tile(std::int64_t tokens, std::int64_t outputs);
void launch_int_gemm(const IntMatmul& a, GemmTile tile, rt::Stream& stream);

// For compute capability 9.0, with sums over whole rows or groups of 128 columns; bit-identical.
bool has_int_wgmma(const IntMatmul& a, const rt::DeviceInfo& device);
void launch_int_wgmma(const IntMatmul& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
