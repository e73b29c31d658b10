// ptx_conformance: compares each instruction that cuda/intrinsics/ptx.h or a similar header wraps
// with its definition in C++, bit for bit, on this machine's first GPU. It needs only the CUDA
// runtime and is the first program to run on a new GPU.
#include <cstdio>

#include "cuda/rt/rt.h"
#include "tests/cuda/ptx/cases.h"

namespace leq {
namespace {

// Counts the words that differ over all seeds of a case, and prints the first difference.
std::size_t differences(const PtxCase& gpu, const PtxCase& host) {
  std::size_t count = 0;
  for (unsigned seed = 1; seed <= gpu.seeds; ++seed) {
    const auto found = gpu.run(seed), want = host.run(seed);
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (found[i] == want[i]) continue;
      if (count++ == 0) {
        std::printf("  seed %u, thread %zu, word %zu: the GPU has %08x, C++ %08x\n", seed, i / 8,
                    i % 8, found[i], want[i]);
      }
    }
  }
  return count;
}

int run() {
  const auto devices = cuda::rt::devices();
  if (devices.empty()) {
    std::printf("gpu: NOT RUN (%s)\n", cuda::rt::why_no_device().c_str());
    return 0;
  }
  std::printf("%s, compute capability %d.%d\n", devices[0].name.c_str(), devices[0].major,
              devices[0].minor);
  const auto on_gpu = cuda::ptx_cases(), on_host = sim::ptx_cases();
  bool right = true;
  for (std::size_t i = 0; i < on_gpu.size(); ++i) {
    if (on_gpu[i].of_90 && (devices[0].major != 9 || devices[0].minor != 0)) {
      std::printf("n/a   %s: of compute capability 9.0\n", on_gpu[i].name);
      continue;
    }
    const std::size_t wrong = differences(on_gpu[i], on_host[i]);
    std::printf("%-5s %s", wrong == 0 ? "ok" : "WRONG", on_gpu[i].name);
    std::printf(wrong == 0 ? "\n" : ": %zu words\n", wrong);
    right = right && wrong == 0;
  }
  return right ? 0 : 1;
}

}  // namespace
}  // namespace leq

int main() { return leq::run(); }
