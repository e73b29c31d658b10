// Prints what cuda/check/budgets.txt means for llama-7b: kernel by kernel the instructions, bytes,
// occupancy and microseconds of one token at 2,048 positions and of a prompt of 2,048, on GPUs that
// are not here.
//   gpu_model [budgets.txt]
#include <cstdio>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "bench/gpu/model.h"

namespace leq::bench {
namespace {

constexpr Scheme kSchemes[] = {
    {"int8", 8}, {"int4-g128", 4}, {"int4-g128, act none", 4, true}, {"f16", 16, true}};
constexpr int kTokens = 2048;

void print(const KernelCodes& codes, const Machine& machine, const std::vector<Part>& parts,
           double tokens) {
  std::printf(
      "| kernel | times | blocks | resident | registers | instructions | MB | memory us | issue us "
      "| tensor us | us | bound by |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n");
  double us = 0;
  int launches = 0;
  for (const auto& [launch, times] : parts) {
    const KernelCode& code = codes.of(launch.kernel, machine.architecture);
    const Estimate found = estimate(machine, launch, code);
    std::printf("| %s | %d | %.0f | %d | %d | %.3g | %.2f | %.1f | %.1f | %.1f | %.1f | %s |\n",
                launch.name.c_str(), times, launch.blocks, found.resident, code.registers,
                found.instructions, launch.bytes * 1e-6, found.memory_us, found.issue_us,
                found.tensor_us, found.us, found.bound);
    us += times * found.us;
    launches += times;
  }
  std::printf("\n%d launches, %.2f ms: %.0f tokens/s\n\n", launches, us * 1e-3, tokens / us * 1e6);
}

void print_all(const KernelCodes& codes) {
  std::printf(
      "Modelled from machine code, not measured. Assumed: memory at 90 %% of the data sheet, 0.6 "
      "us "
      "to it\nand back, four instructions a cycle and multiprocessor, kernels one after the other "
      "with 1 to 1.5 us\nbetween them, mma.sync on 9.0 at 62 %% of wgmma; the largest of these "
      "times is the kernel's.\n\n");
  for (const Machine& machine : machines()) {
    for (const Scheme& scheme : kSchemes) {
      if (!scheme.f32_inputs) {
        std::printf("## %s, %s: one token at %d positions\n\n", machine.name, scheme.name, kTokens);
        print(codes, machine, token_of_7b(scheme, kTokens), 1);
      }
      std::printf("## %s, %s: prompt of %d\n\n", machine.name, scheme.name, kTokens);
      print(codes, machine, prompt_of_7b(machine, scheme, kTokens), kTokens);
    }
  }
}

}  // namespace
}  // namespace leq::bench

int main(int argc, char** argv) {
  try {
    const std::string name = argc > 1 ? argv[1] : "cuda/check/budgets.txt";
    std::ifstream in(name);
    leq::require(in.good(), name, ": cannot be read; start this in the project, or name the file");
    leq::bench::print_all(
        leq::bench::KernelCodes(std::string((std::istreambuf_iterator<char>(in)), {})));
  } catch (const leq::Error& error) {
    std::fprintf(stderr, "gpu_model: %s\n", error.what());
    return 1;
  }
}
