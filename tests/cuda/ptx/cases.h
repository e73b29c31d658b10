// Each instruction that kernels use has a small kernel, compiled twice: for the GPU, which executes
// the instruction, and for the emulator, which executes its C++ definition. Bits must agree.
#pragma once

#include <cstdint>
#include <vector>

namespace leq {

// Each thread reads `in` words, made from a seed, and writes `out` words, the kernel's results.
struct PtxCase {
  const char* name;
  unsigned seeds;  // number of seeds
  std::vector<std::uint32_t> (*run)(unsigned seed);
  bool of_90 = false;  // only for compute capability 9.0
};

namespace cuda {
std::vector<PtxCase> ptx_cases();
}
namespace sim {
std::vector<PtxCase> ptx_cases();
}

}  // namespace leq
