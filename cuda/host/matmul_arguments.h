// Converts a linear to arguments of the matmul kernels.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "backend/operations.h"
#include "base/error.h"
#include "cuda/host/device_weights.h"
#include "cuda/host/row_blocks.h"

namespace leq::LEQ_GPU {

// Returns whether one kernel launch can compute all weights of a linear.
bool is_one_launch(const Linear& linear);
// Splits the linear into parts with one launch each, in the order of outputs.
std::vector<Linear> launched_parts(const Linear& linear);

inline Finish finish_of(const Epilogue& epilogue) {
  constexpr std::array kGated = {Finish::swiglu, Finish::geglu, Finish::clamped_swiglu};
  if (epilogue.is_gated()) return kGated[static_cast<std::size_t>(epilogue.activation)];
  const bool silu = epilogue.activation == Activation::silu;
  if (epilogue.kind == Epilogue::Kind::activated) return silu ? Finish::silu : Finish::gelu;
  return epilogue == Epilogue::add ? Finish::add : Finish::store;
}

// Sets all arguments but the inputs, for IntMatmul, SuperMatmul, FloatMatmul or WeightOnlyMatmul.
template <class Arguments>
Arguments matmul_arguments(const Linear& linear, std::int64_t tokens, Epilogue epilogue,
                           const Rows& out) {
  Arguments a;
  ensure(linear.segments.size() <= kMaxSegments, linear.name, ": ", linear.segments.size(),
         " weights share an input, the kernels take ", kMaxSegments);
  for (const LinearSegment& segment : linear.parts()) {
    auto& made = a.segments[a.segment_count++];
    if constexpr (std::is_same_v<Arguments, FloatMatmul>) {
      made.weight = float_weight(segment.weight);
    } else if constexpr (std::is_same_v<Arguments, SuperMatmul>) {
      made.weight = super_weight(segment.weight);
    } else {
      made.weight = code_weight(segment.weight);
    }
    made.bias = segment.bias;
    made.rows = segment.weight.rows;
  }
  a.tokens = tokens;
  a.columns = linear.inputs;
  a.finish = finish_of(epilogue);
  a.out = float_rows(out);
  return a;
}

}  // namespace leq::LEQ_GPU
