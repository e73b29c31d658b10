// Matmuls of f32 activations: which kernel runs.
#include "cuda/float_matmul.cuh"

#include "cuda/run.h"

namespace leq::LEQ_GPU {
namespace {

template <class Row, int tokens, class Arguments>
void launch_tokens(const char* name, const Arguments& a, rt::Stream& stream) {
  std::int64_t blocks = 0;
  for (int i = 0; i < (a.finish == Finish::swiglu ? 1 : a.segment_count); ++i) {
    blocks += (a.segments[i].rows + kFloatRows - 1) / kFloatRows;
  }
  const std::int64_t token_blocks = (a.tokens + tokens - 1) / tokens;
  rt::run(stream,
          {name, dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(token_blocks)),
           dim3(kFloatWarps * 32), 0, rt::Start::early},
          float_rows<Row, tokens, Arguments>, a);
}

template <class Row, class Arguments>
void launch(const char* name, const Arguments& a, rt::Stream& stream) {
  if (a.tokens <= 0) return;
  if (a.tokens == 1) return launch_tokens<Row, 1>(name, a, stream);
  if (a.tokens <= 4) return launch_tokens<Row, 4>(name, a, stream);
  launch_tokens<Row, 8>(name, a, stream);
}

}  // namespace

void launch_float_matmul(const FloatMatmul& a, rt::Stream& stream) {
  switch (a.segments[0].weight.type) {
    case FloatType::f32:
      return launch<FloatRow<FloatType::f32>>("float_matmul", a, stream);
    case FloatType::f16:
      return launch<FloatRow<FloatType::f16>>("float_matmul", a, stream);
    case FloatType::bf16:
      return launch<FloatRow<FloatType::bf16>>("float_matmul", a, stream);
  }
}

void launch_weight_only_matmul(const WeightOnlyMatmul& a, rt::Stream& stream) {
  switch (a.segments[0].weight.bits) {
    case 2:
      return launch<CodeRow<2>>("weight_only_matmul", a, stream);
    case 3:
      return launch<CodeRow<3>>("weight_only_matmul", a, stream);
    case 4:
      return launch<CodeRow<4>>("weight_only_matmul", a, stream);
    default:
      return launch<CodeRow<8>>("weight_only_matmul", a, stream);
  }
}

const char* describe_float_matmul() { return "fma chains"; }

}  // namespace leq::LEQ_GPU
