// Integer matmuls: which kernel runs.
#include "cuda/int_matmul.h"

#include <algorithm>

namespace leq::LEQ_GPU {
namespace {

// Groups that the integers of `a` are sums over.
std::int64_t integer_groups(const IntMatmul& a) {
  const int weights = a.segments[0].weight.group;
  if (weights == 0 && a.x.group == 0) return 1;
  const int group = weights == 0     ? a.x.group
                    : a.x.group == 0 ? weights
                                     : std::min(weights, a.x.group);
  return (a.columns + 127) / 128 * 128 / group;
}

std::int64_t outputs_of(const IntMatmul& a) {
  std::int64_t outputs = 0;
  for (int i = 0; i < a.segment_count; ++i) outputs += a.segments[i].rows;
  return outputs;
}

// Large tiles read least, but there should be about one for each multiprocessor.
GemmTile tile_for(const IntMatmul& a) {
  constexpr std::int64_t kEnoughTiles = 100;
  if (a.tokens <= 16) return GemmTile::small;
  const std::int64_t large = (a.tokens + 127) / 128 * ((outputs_of(a) + 127) / 128);
  return large < kEnoughTiles ? GemmTile::middle : GemmTile::large;
}

void launch(const IntMatmul& a, rt::Stream& stream) {
  const int bits = a.segments[0].weight.bits;
  if (a.tokens <= most_gemv_tokens(bits)) return launch_int_gemv(a, stream);
  switch (bits) {
    case 2:
      return launch_int_gemm_2(a, tile_for(a), stream);
    case 3:
      return launch_int_gemm_3(a, tile_for(a), stream);
    case 4:
      return launch_int_gemm_4(a, tile_for(a), stream);
    default:
      return launch_int_gemm_8(a, tile_for(a), stream);
  }
}

}  // namespace

void launch_int_matmul(const IntMatmul& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  if (a.integers == nullptr) return launch(a, stream);
  // Parts of a sum are added to what is there.
  const auto count = static_cast<std::size_t>(integer_groups(a) * a.tokens * outputs_of(a));
  rt::fill_zero(a.integers, count * sizeof(std::int32_t), stream);
  IntMatmul plain = a;
  plain.finish = Finish::store;
  launch(plain, stream);
}

const char* describe_int_matmul(int bits, std::int64_t tokens) {
  return tokens <= most_gemv_tokens(bits) ? "dp4a" : "mma";
}

}  // namespace leq::LEQ_GPU
