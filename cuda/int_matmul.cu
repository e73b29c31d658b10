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

void launch(const IntMatmul& a, rt::Stream& stream) {
  if (a.tokens <= most_gemv_tokens(a.segments[0].weight.bits)) return launch_int_gemv(a, stream);
  switch (a.segments[0].weight.bits) {
    case 2:
      return launch_int_gemm_2(a, stream);
    case 3:
      return launch_int_gemm_3(a, stream);
    case 4:
      return launch_int_gemm_4(a, stream);
    default:
      return launch_int_gemm_8(a, stream);
  }
}

}  // namespace

void launch_int_matmul(const IntMatmul& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  if (a.integers == nullptr) return launch(a, stream);
  // Parts of a sum are added to what is there.
  std::int64_t outputs = 0;
  for (int i = 0; i < a.segment_count; ++i) outputs += a.segments[i].rows;
  const auto count = static_cast<std::size_t>(integer_groups(a) * a.tokens * outputs);
  rt::fill_zero(a.integers, count * sizeof(std::int32_t), stream);
  IntMatmul plain = a;
  plain.finish = Finish::store;
  launch(plain, stream);
}

const char* describe_int_matmul(int bits, std::int64_t tokens) {
  return tokens <= most_gemv_tokens(bits) ? "dp4a" : "mma";
}

}  // namespace leq::LEQ_GPU
