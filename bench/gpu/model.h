// Times of kernels as they follow from their machine code: instructions, bytes and occupancy ->
// microseconds on GPUs that are not here. No measurement: what it assumes stands in Machine, Launch
// and estimate(), and gpu_model prints it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace leq::bench {

// What cuda/check/budgets.txt holds of a kernel on one architecture.
struct KernelCode {
  int registers = 0;
  // Of the shortest and the longest way round its main loop the instructions, and those of them
  // that do the work: dp4a or mma. 0: it has none.
  int least = 0, most = 0, work = 0;
};

class KernelCodes {
 public:
  // Throws Error where a line is not as check_nvcc.sh writes it.
  explicit KernelCodes(std::string_view budgets);
  // The kernel whose name begins so, on an architecture like "sm_90a". Throws Error: none or
  // several.
  const KernelCode& of(const std::string& begin, const std::string& architecture) const;

 private:
  std::map<std::string, KernelCode> codes_;  // "kernel architecture"
};

struct Machine {
  const char* name;
  const char* architecture;
  int multiprocessors;
  double ghz;
  double gbps;          // that memory gives to a kernel that only reads
  int shared_kib;       // of a multiprocessor
  int threads;          // that it holds
  double s8_products;   // of the tensor cores, a cycle and multiprocessor
  double f16_products;  // with f32 sums, which GeForce cards make at half the rate
  double launch_us;     // from the end of a kernel to where the next one works, within a graph
};
const std::vector<Machine>& machines();

// What makes the products.
enum class Unit { dp4a, mma_s8, mma_f16, wgmma_s8, wgmma_f16 };

// A kernel's launch.
struct Launch {
  std::string name;    // for people
  std::string kernel;  // how its name in budgets.txt begins
  double blocks = 1;
  int warps = 1;         // of a block
  int shared_bytes = 0;  // of a block
  Unit unit = Unit::dp4a;
  double products = 0;   // of all warps
  double work = 0;       // the instructions that make them: dp4a, mma
  double rounds = 0;     // of the main loop, of all warps, where it is not work / KernelCode::work
  bool longest = false;  // the way of its rounds is the longest: lanes part in it, but no flags
  double beside = 0;     // instructions of a round that its way goes around
  double other = 300;    // instructions of each warp outside of its main loop
  double bytes = 0;      // from memory
  double ahead_bytes = 0;  // that a warp has on their way
  double round_trips = 2;  // to memory, one after the other, before the first result
};

struct Estimate {
  int resident = 0;         // blocks of a multiprocessor
  double instructions = 0;  // of all warps
  // The time of each: memory, instructions issued, tensor cores, and round trips to memory; the sum
  // of the largest and of the launch.
  double memory_us = 0, issue_us = 0, tensor_us = 0, trips_us = 0, us = 0;
  const char* bound = "";
};
Estimate estimate(const Machine& machine, const Launch& launch, const KernelCode& code);

// How linears of llama-7b are stored: 8 bits with a scale a row, 4 with one for 128 columns, or f16
// (16). f32 inputs are cut into two f16 each: f16 always, codes with act none; prompts alone.
struct Scheme {
  const char* name;
  int bits;
  bool f32_inputs = false;
};
struct Part {
  Launch launch;
  int times;  // in a step
};
// The launches of a step of llama-7b, int8 pages: one token at a depth, or a prompt at none.
// Linears into o, down and the head take codes with a scale for 128 columns; the head is stored in
// 8 bits always.
std::vector<Part> token_of_7b(const Scheme& scheme, int depth);
std::vector<Part> prompt_of_7b(const Machine& machine, const Scheme& scheme, int tokens);

}  // namespace leq::bench
