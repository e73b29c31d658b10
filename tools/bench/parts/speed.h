// Speed of a model: tokens per second in prompt and generation tests, bytes read and operations
// computed, their share of the machine's limits, and the parts of a step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/steps.h"
#include "model/session.h"

namespace leq {

// One test, named as in llama-bench: prompt tokens in one step, then tokens one by one; or
// generation for several sequences, where each step takes one token of each sequence.
struct BenchTest {
  std::int64_t prompt = 0;
  std::int64_t generated = 0;  // tokens per sequence
  std::int64_t depth = 0;      // positions in each sequence's cache before the test starts
  int sequences = 1;           // if more than one: generation only, no prompt

  std::int64_t positions() const { return depth + prompt + generated; }  // positions per sequence
  std::int64_t tokens() const { return prompt + generated * sequences; }
};
std::string bench_test_name(const BenchTest& test);  // "pp512", "tg128", "pp512+tg128", "tg128x16"

// Peak rates of the machine, measured during a run; 0 = not needed and therefore not measured.
struct MachineLimits {
  double read_gbps = 0;      // memory reads by all threads of as many bytes as the test reads
  double compute_gops = 0;   // int8 dot products, or f32 multiply-adds for float types
  std::string compute_kind;  // "vpdpbusd"
  double head_gops = 0;      // rate for the head if its products are of another kind, or 0
};

// One run of a test. Memory and clock rates of shared machines vary from second to second, so that
// each run has its own limits: the better of those measured right before and right after the run.
struct BenchRun {
  double seconds = 0;
  MachineLimits limits;
};

// Lower bounds of the bytes that a test reads and the operations that it computes.
struct BenchWork {
  std::uint64_t weight_bytes = 0;   // codes, scales, sums of linears and head read by a step
  std::uint64_t kv_bytes = 0;       // keys and values of `depth` positions, and states
  double block_operations = 0;      // per token: 2 x parameters of blocks that a token uses
  std::int64_t batch_tokens = 512;  // prompt tokens that share one read of the weights
  double head_operations = 0;       // per token: 2 x parameters of the head
  int block_bits = 0;               // fewest bits of block linears' codes; 0: f32 products
  int head_bits = 0;
  std::uint64_t prompt_bytes = 0;  // weight_bytes for a prompt batch, if that is larger

  std::uint64_t bytes_per_token() const { return weight_bytes + kv_bytes; }
};
BenchWork bench_work(Session& session, const BenchTest& test);

// Before each run every sequence gets `depth` cached positions: 512 positions of random text,
// repeated. Starts with some untimed steps; `after_run(runs done)` reports progress.
std::vector<BenchRun> time_bench_test(Session& session, const BenchTest& test, int runs,
                                      const std::function<MachineLimits()>& limits_now,
                                      const std::function<void(int)>& after_run);

// The numbers of one row of the result table.
struct BenchNumbers {
  double tps = 0, tps_min = 0, tps_max = 0;  // tokens per second: median, slowest, fastest
  double gbps = 0;                           // GB per second of bytes that a run has to read
  double gops = 0;                           // block_operations x tps
  std::string limit_kind;                    // what bounds the speed: "read", or compute_kind
  double limit = 0;  // median, in GB/s or GOPS; for mixed tests in t/s; 0: unknown
  double share = 0;  // median over the runs of (speed of a run) / (limit of the run), 0..1
};
// `runs` must not be empty.
BenchNumbers bench_numbers(const BenchTest& test, const BenchWork& work,
                           std::span<const BenchRun> runs);

// Time of a step by class of operation: the classes of the paper's latency table, and also
// attention and sampling.
//
// Means over the steps of a test. A step is a prompt, or one generated token of each sequence.
struct Breakdown {
  std::int64_t steps = 0;
  StepTimes times;           // times of one step, with operations and bytes
  double step_seconds = 0;   // wall time of the steps in `times`, measured separately
  double plain_seconds = 0;  // wall time of a step without instrumentation
};

// Half of the `runs` (at least one) run without instrumentation and alternate with runs that time
// the parts. The median run of each kind is used. Generated tokens are sampled from the logits as
// in normal use. `test` must be either prompt or generation.
Breakdown break_down(Session& session, const BenchTest& test, int runs,
                     const std::function<void(int)>& after_run);

}  // namespace leq
