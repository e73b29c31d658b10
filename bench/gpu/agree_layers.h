// Compares two ways of computing layers other than dense linears and attention, bit for bit.
#pragma once

#include <cstdint>

#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU::bench {

struct Tally {
  std::int64_t runs = 0, wrong = 0;
};

// Compares the linears of experts at the sizes of Qwen3-30B-A3B: all rows in one launch, and row by
// row with the kernel for one token. Prints a table row for each kind.
Tally compare_experts(bool tiny, rt::Stream& stream);
// Compares Gated DeltaNet at the sizes of Qwen3-Next: a whole text at once, and token by token.
Tally compare_delta_net(bool tiny, rt::Stream& stream);

}  // namespace leq::LEQ_GPU::bench
