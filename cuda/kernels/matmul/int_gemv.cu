// The kernels for few tokens, selected by bits, tokens and grouping.
#include "cuda/kernels/matmul/int_gemv.cuh"

#include <algorithm>

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/int_gemv_tokens.cuh"
#include "cuda/kernels/matmul/int_matmul.h"

namespace leq::LEQ_GPU {
namespace {

// With more outputs, 9 to 16 tokens are faster in tiles of 64 outputs (int_gemm.cuh), which share
// the inputs; with fewer, these are too few blocks. Estimated from measurements on an H200.
std::int64_t most_tokens(const IntMatmul& a) {
  const std::int64_t most_outputs = a.segments[0].weight.bits == 4 ? 16384 : 132 * 64;
  return (outputs_of(a) < most_outputs ? 2 : 1) * kSideTokens;
}

template <int bits>
void launch_groups(const IntMatmul& a, rt::Stream& stream) {
  if (a.tokens == 1) {
    return rt::run(stream, groups_launch("int_gemv_groups", a), int_gemv_groups<bits>, a);
  }
  const std::int64_t groups = round_up_to(a.columns, kGroupColumns) / kGroupColumns;
  const int sides = a.tokens <= kSideTokens ? 1 : 2;
  const std::int64_t waiting = std::min(groups * sides, std::int64_t{kTokenRound}) * kSideTokens;
  const bool zeros = a.segments[0].weight.zeros != nullptr;
  const auto kernel = sides == 1
                          ? zeros ? int_gemv_tokens<bits, true, 1> : int_gemv_tokens<bits, false, 1>
                      : zeros ? int_gemv_tokens<bits, true, 2>
                              : int_gemv_tokens<bits, false, 2>;
  rt::Launch launch = groups_launch("int_gemv_tokens", a);
  launch.shared_bytes = static_cast<std::size_t>(waiting * kGroupRows) * sizeof(WaitingSum);
  rt::run(stream, launch, kernel, a);
}

template <int bits>
void launch(const IntMatmul& a, rt::Stream& stream) {
  if constexpr (bits != kTableBits) {
    if (has_groups_of_128(a, a.tokens)) return launch_groups<bits>(a, stream);
  }
  const bool paired = is_gated(a.finish);
  int warps = 0;
  for (int i = 0; i < (paired ? 1 : a.segment_count); ++i) {
    warps += gemv_warps<bits>(a.segments[i].rows, paired);
  }
  const bool grouped = a.segments[0].weight.group > 0 || a.x.group > 0;
  auto* kernel = int_gemv<bits, true>;
  // Codes of fewer than 8 bits always have groups.
  if constexpr (bits == 8) {
    if (!grouped) kernel = int_gemv<8, false>;
  }
  rt::run(stream,
          {"int_gemv", dim3(static_cast<unsigned>(warps / kGemvWarps)), dim3(kGemvWarps * 32),
           grouped ? kGemvWarps * sizeof(WaitingGroups<bits>) : 0, rt::Start::early},
          kernel, a);
}

}  // namespace

bool has_int_gemv_tokens(const IntMatmul& a) {
  return a.tokens > 1 && has_groups_of_128(a, a.tokens);
}

bool has_int_gemv(const IntMatmul& a) {
  return a.tokens == 1 || (a.tokens <= most_tokens(a) && has_groups_of_128(a, a.tokens));
}

void launch_int_gemv(const IntMatmul& a, rt::Stream& stream) {
  launch_by_codes(a.segments[0].weight, [&]<int bits>() { launch<bits>(a, stream); });
}

}  // namespace leq::LEQ_GPU
