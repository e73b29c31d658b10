// Launches a matmul of inputs that are split into terms (f16 or bf16 parts). The files
// float_gemm_*.cu include this file and compile in parallel. All kernels add in the same order.
#pragma once

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/float_gemm.cuh"
#include "cuda/kernels/matmul/float_gemv.cuh"
#include "cuda/kernels/matmul/float_matmul.h"

namespace leq::LEQ_GPU {

// Tiles have 8 tokens x 16 or 32 outputs, 64 x 64, and 128 x 128, or 64 x 128 for codes of 3 and 2
// bits. A block has at most 99 KB of shared memory, the limit of an RTX 4090.
struct KTilesOf32 {
  using Middle = FloatGemmShape<64, 64, 2, 2, 32, 4>;
  using Large = FloatGemmShape<128, 128, 2, 4, 32, 4>;
};
template <class Weights>
struct FloatShapes;
template <>
struct FloatShapes<HalfWeights<2>> : KTilesOf32 {
  using Few = FloatGemvShape<1, 2>;
};
template <>
struct FloatShapes<HalfWeights<3>> : KTilesOf32 {
  using Few = FloatGemvShape<1, 2>;
  using Large = FloatGemmShape<128, 128, 2, 4, 32, 3>;
};
template <>
struct FloatShapes<CodeWeights<8>> : KTilesOf32 {
  using Few = FloatGemvShape<1, 4>;
};
template <>
struct FloatShapes<CodeWeights<4>> : KTilesOf32 {
  using Few = FloatGemvShape<2, 3>;
};
template <>
struct FloatShapes<CodeWeights<3>> {
  using Few = FloatGemvShape<2, 4>;
  using Middle = FloatGemmShape<64, 64, 2, 2, 128, 2>;
  using Large = FloatGemmShape<64, 128, 4, 2, 128, 2>;
};
template <>
struct FloatShapes<CodeWeights<2>> : FloatShapes<CodeWeights<3>> {};

template <class Weights>
void launch_few(const typename Weights::Arguments& a, rt::Stream& stream) {
  using Shape = typename FloatShapes<Weights>::Few;
  const int group = [&] {
    if constexpr (Weights::kScaled) return a.segments[0].weight.group;
    return 0;
  }();
  const int bytes = FloatGemvMemory<Weights, Shape>::bytes(group == 0 ? kBlockColumns : group);
  rt::run(stream,
          {"float_gemv", tiles_of<Shape>(a), dim3(Shape::kThreads), static_cast<std::size_t>(bytes),
           rt::Start::early},
          float_gemv<Weights, Shape>, a);
}

template <class Weights, class Shape>
void launch_many(const typename Weights::Arguments& a, rt::Stream& stream) {
  rt::run(stream,
          {"float_gemm", tiles_of<Shape>(a), dim3(Shape::kThreads),
           FloatGemmMemory<Weights, Shape>::kBytes, rt::Start::early},
          float_gemm<Weights, Shape>, a);
}

template <class Weights>
void launch_terms(const typename Weights::Arguments& a, FloatTile tile, rt::Stream& stream) {
  using Shapes = FloatShapes<Weights>;
  if (tile == FloatTile::few) return launch_few<Weights>(a, stream);
  if (tile == FloatTile::middle) return launch_many<Weights, typename Shapes::Middle>(a, stream);
  launch_many<Weights, typename Shapes::Large>(a, stream);
}

}  // namespace leq::LEQ_GPU
