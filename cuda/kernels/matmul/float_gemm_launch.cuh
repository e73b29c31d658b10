// Launches a matmul of terms; for the files float_gemm_*.cu, which compile side by side. All ways
// add in one order: the choice changes no bit.
#pragma once

#include "cuda/intrinsics/run.h"
#include "cuda/kernels/matmul/float_gemm.cuh"
#include "cuda/kernels/matmul/float_gemv.cuh"
#include "cuda/kernels/matmul/float_matmul.h"

namespace leq::LEQ_GPU {

// Blocks: 8 tokens x 16 or 32 outputs; 64 x 64; 128 x 128, or 64 x 128 for codes whose 16 bytes are
// more than 32 columns. At most 99 KB of shared memory, which an RTX 4090 has.
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
