// Instructions that kernels use, each in a small kernel that is compiled twice: for the GPU, where
// it runs the instruction, and for the emulator, where it runs its meaning in C++. Bits must agree.
#pragma once

#include <cstdint>
#include <vector>

namespace leq {

// `in` words for each thread from a seed, `out` words of each thread: what the kernel made of them.
struct PtxCase {
  const char* name;
  unsigned seeds;  // how many there are
  std::vector<std::uint32_t> (*run)(unsigned seed);
  bool of_90 = false;  // instructions of compute capability 9.0 alone
};

namespace cuda {
std::vector<PtxCase> ptx_cases();
}
namespace sim {
std::vector<PtxCase> ptx_cases();
}

}  // namespace leq
