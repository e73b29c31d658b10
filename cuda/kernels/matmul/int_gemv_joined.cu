// int_gemv_groups and what follows it in one launch, which saves the time between two launches: the
// norm of a row takes as long as that.
#include "cuda/kernels/attention/rope_append.cuh"
#include "cuda/kernels/matmul/int_gemv_groups.cuh"
#include "cuda/kernels/matmul/int_matmul.h"
#include "cuda/kernels/rows/add_experts.cuh"
#include "cuda/kernels/rows/norm.cuh"

namespace leq::LEQ_GPU {
namespace {

static_assert(kNormThreads == kGroupWarps * 32);

template <int bits>
__global__ void __launch_bounds__(kGroupWarps * 32, GroupShape<bits>::kBlocks)
    int_gemv_norm(const LEQ_GRID_CONSTANT IntMatmul a, const LEQ_GRID_CONSTANT NormArguments next,
                  unsigned* ticket) {
  LEQ_BOUNDS(kGroupWarps * 32);
  groups_block<bits>(a, [&](const BlockRows&) {
    return [&] {
      LEQ_DYNAMIC_SHARED(float, row);
      if (is_last_block(ticket, gridDim.x)) norm_fresh_row(next, row);
    };
  });
}

// The second warp prepares the head, because the first one adds the block's sums meanwhile.
template <int bits>
__global__ void __launch_bounds__(kGroupWarps * 32, GroupShape<bits>::kBlocks)
    int_gemv_rope(const LEQ_GRID_CONSTANT IntMatmul a,
                  const LEQ_GRID_CONSTANT RopeAppendArguments next, float query_factor,
                  unsigned* tickets) {
  LEQ_BOUNDS(kGroupWarps * 32);
  groups_block<bits>(a, [&](const BlockRows& rows) {
    const int dims = next.heads.head_dim, index = static_cast<int>(rows.column) / dims;
    const bool prepares = threadIdx.x / 32 == 1 && index < heads_of_row(next);
    HeadPlace place;
    if (prepares) place = HeadPlace(next, 0, index);
    return [=, &next] {
      LEQ_DYNAMIC_SHARED(float, x);
      if (!is_last_block(tickets + index, static_cast<unsigned>(dims / kGroupRows))) return;
      if (!prepares) return;
      const unsigned lane = threadIdx.x % 32;
      const Angles angles = angles_of(next, index, place.position, lane);
      const float* const gain = gain_of(next, index);
      float* const gains = x + head_stride(dims);
      if (gain != nullptr) {
        for_quads(gain, dims, lane,
                  [&](int c, const Quad& quad) { store_quad(gains, c, dims, quad); });
      }
      const float* const from = next.qkv.values + std::int64_t{index} * dims;
      append_head(next, query_factor, place, angles, 0, index, x, gains, lane, [&](int c) {
        Quad quad;
#pragma unroll
        for (int i = 0; i < 4; ++i) quad.x[i] = c + i < dims ? read_fresh(from + c + i) : 0.0f;
        return quad;
      });
    };
  });
}

// Each block adds the columns that it has computed; products of other experts are complete.
template <int bits>
__global__ void __launch_bounds__(kGroupWarps * 32, GroupShape<bits>::kBlocks)
    int_gemv_add(const LEQ_GRID_CONSTANT IntMatmul a,
                 const LEQ_GRID_CONSTANT AddExpertsArguments next) {
  LEQ_BOUNDS(kGroupWarps * 32);
  groups_block<bits>(a, [&](const BlockRows& rows) {
    return [&] {
      const std::int64_t c = rows.column + threadIdx.x;
      if (threadIdx.x < kGroupRows && c < next.width) add_column(next, 0, c);
    };
  });
}

bool is_joinable(const IntMatmul& a) {
  return a.tokens == 1 && !a.codes.exist() && has_groups_of_128(a, 1) &&
         !rt::has_debug_option("no-join");
}

}  // namespace

bool joins(const IntMatmul& a, const NormArguments& next) {
  return is_joinable(a) && !is_gated(a.finish) && joins_outputs(next, a.out, outputs_of(a));
}

void launch_joined(const IntMatmul& a, const NormArguments& next, unsigned* tickets,
                   rt::Stream& stream) {
  launch_by_bits(a.segments[0].weight.bits, [&]<int bits>() {
    rt::run(stream, groups_launch("int_gemv_norm", a, row_bytes(next)), int_gemv_norm<bits>, a,
            next, tickets);
  });
}

bool joins(const IntMatmul& a, const RopeAppendArguments& next) {
  const int dims = next.heads.head_dim;
  bool whole_heads = dims % kGroupRows == 0;  // a block's rows are of one head
  for (int i = 0; i < a.segment_count; ++i)
    whole_heads = whole_heads && a.segments[i].rows % dims == 0;
  return whole_heads && is_joinable(a) && a.finish == Finish::store && next.batch.tokens == 1 &&
         next.qkv.values == a.out.values && outputs_of(a) / dims <= kTickets;
}

void launch_joined(const IntMatmul& a, const RopeAppendArguments& next, unsigned* tickets,
                   rt::Stream& stream) {
  const std::size_t bytes = std::size_t{2} * head_stride(next.heads.head_dim) * sizeof(float);
  launch_by_bits(a.segments[0].weight.bits, [&]<int bits>() {
    rt::run(stream, groups_launch("int_gemv_rope", a, bytes), int_gemv_rope<bits>, a, next,
            query_factor_of(next), tickets);
  });
}

bool joins(const IntMatmul& a, const AddExpertsArguments& next) {
  const FloatRows& products = next.products;
  const int bits = a.segments[0].weight.bits;
  return is_joinable(a) && (bits == 8 || bits == 4) && a.finish == Finish::store &&
         a.segment_count == 1 && next.tokens == 1 && next.has_shared &&
         next.width == outputs_of(a) &&
         a.out.values == products.values + next.choice.active * products.stride;
}

void launch_joined(const IntMatmul& a, const AddExpertsArguments& next, unsigned*,
                   rt::Stream& stream) {
  const auto kernel = a.segments[0].weight.bits == 8 ? int_gemv_add<8> : int_gemv_add<4>;
  rt::run(stream, groups_launch("int_gemv_add", a), kernel, a, next);
}

}  // namespace leq::LEQ_GPU
