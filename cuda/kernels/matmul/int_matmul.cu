// Selects the kernel for integer matmuls.
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {
GemmTile gemm_tile(std::int64_t tokens, std::int64_t outputs) {
  constexpr std::int64_t kEnoughTiles = 100, kMultiprocessors = 132;
  if (tokens <= 64 && (outputs + 63) / 64 < kMultiprocessors) return GemmTile::few;
  if (tokens <= 16) return GemmTile::small;
  const std::int64_t large = (tokens + 127) / 128 * ((outputs + 127) / 128);
  return large < kEnoughTiles ? GemmTile::middle : GemmTile::large;
}

bool has_int_wgmma(const IntMatmul& a, const rt::DeviceInfo& device) {
  constexpr std::int64_t kFewestTokens = 65;  // with fewer, half of a tile of 128 would be empty
  const int weights = a.segments[0].weight.group;
  if (device.major != 9 || rt::has_debug_option("no-wgmma")) return false;
  return a.tokens >= kFewestTokens && (weights == 0 || weights == 128) &&
         (a.x.group == 0 || a.x.group == 128);
}

void launch_int_gemm(const IntMatmul& a, GemmTile tile, rt::Stream& stream) {
  launch_by_codes(a.segments[0].weight,
                  [&]<int bits>() { launch_int_gemm<bits>(a, tile, stream); });
}

void launch_int_matmul(const IntMatmul& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  if (has_int_gemv(a)) return launch_int_gemv(a, stream);
  if (!has_int_wgmma(a, rt::device_of(stream))) {
    return launch_int_gemm(a, gemm_tile(a.tokens, outputs_of(a)), stream);
  }
  launch_by_bits(a.segments[0].weight.bits, [&]<int bits>() { launch_int_wgmma<bits>(a, stream); });
}

bool makes_codes(const IntMatmul& a) {
  const bool one_place = is_gated(a.finish) || a.segment_count == 1;
  return has_int_gemv(a) && one_place && outputs_of(a) <= std::int64_t{kTickets} * 128;
}

const char* describe_int_matmul(const IntMatmul& a) {
  return has_int_gemv(a) && !has_int_gemv_tokens(a) ? "dp4a" : "mma";
}

}  // namespace leq::LEQ_GPU
