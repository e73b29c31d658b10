// Speed of a model: tokens per second of prompt and generation tests, the bytes and operations
// after them, and their share of what the machine can do.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/session.h"

namespace leq {

// One test, named as llama-bench does: prompt tokens fed at once, then tokens fed one by one; or
// tokens of several sequences, one of each in a step.
struct BenchTest {
  std::int64_t prompt = 0;
  std::int64_t generated = 0;  // of each sequence
  std::int64_t depth = 0;      // positions in the cache before the test, of each sequence
  int sequences = 1;           // more than one: without a prompt

  std::int64_t positions() const { return depth + prompt + generated; }  // of each sequence
  std::int64_t tokens() const { return prompt + generated * sequences; }
};
std::string bench_test_name(const BenchTest& test);  // "pp512", "tg128", "pp512+tg128", "tg128x16"

// What the machine can do at most, measured beside a run; 0 = not needed, not measured.
struct MachineLimits {
  double read_gbps = 0;      // of memory, all threads, at the working set of a test
  double compute_gops = 0;   // int8 dot products, or f32 multiply-adds for float types
  std::string compute_kind;  // "vpdpbusd"
  double head_gops = 0;      // of the head's products, where they are others; else 0
};

// One run of a test. Memory and clocks of shared machines change from second to second, so each run
// has limits of its own: the better ones of those measured right before and right after it.
struct BenchRun {
  double seconds = 0;
  MachineLimits limits;
};

// What a test must at least read and compute.
struct BenchWork {
  std::uint64_t weight_bytes = 0;   // codes, scales, sums of linears and head that a step reads
  std::uint64_t kv_bytes = 0;       // keys, values of `depth` positions and states of all sequences
  double block_operations = 0;      // for one token: 2 x parameters that it meets in the blocks
  std::int64_t batch_tokens = 512;  // prompt tokens that share one reading of the weights
  double head_operations = 0;       // for one token: 2 x parameters of the head
  int block_bits = 0;               // fewest of the block linears' codes; 0: floats are multiplied
  int head_bits = 0;
  std::uint64_t prompt_bytes = 0;  // as weight_bytes, of a batch of a prompt, where that is more

  std::uint64_t bytes_per_token() const { return weight_bytes + kv_bytes; }
};
BenchWork bench_work(Session& session, const BenchTest& test);

// Each sequence holds `depth` positions before each run: random text, its first 512 positions
// repeated. Some untimed steps come first; `after_run(runs done)` reports progress.
std::vector<BenchRun> time_bench_test(Session& session, const BenchTest& test, int runs,
                                      const std::function<MachineLimits()>& limits_now,
                                      const std::function<void(int)>& after_run);

// The numbers of one row.
struct BenchNumbers {
  double tps = 0, tps_min = 0, tps_max = 0;  // tokens per second: median, slowest, fastest
  double gbps = 0;                           // bytes that must be read, per second
  double gops = 0;                           // block_operations x tps
  std::string limit_kind;                    // what bounds the test: "read", or compute_kind
  double limit = 0;  // median, in GB/s or GOPS; for mixed tests in t/s; 0: unknown
  double share = 0;  // median of the runs' shares of their limits, 0..1
};
// `runs` must not be empty.
BenchNumbers bench_numbers(const BenchTest& test, const BenchWork& work,
                           std::span<const BenchRun> runs);

}  // namespace leq
