#include "eval/bench.h"

#include <algorithm>

#include "base/error.h"
#include "base/median.h"
#include "base/stopwatch.h"
#include "eval/bench_steps.h"
#include "model/tensor_list.h"

namespace leq {
namespace {

// Bytes of keys and values of all layers that the query at `depth` reads: codes, and f16 copies
// where it reads those.
std::uint64_t cache_bytes(Session& session, std::int64_t depth) {
  const ModelConfig& config = session.transformer().config();
  const KvZones& zones = session.cache().zones();
  std::uint64_t bytes = 0;
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    const std::int64_t window = config.window(layer);
    const std::int64_t visible = window == 0 ? depth : std::min(depth, window);
    const std::int64_t first = std::max<std::int64_t>(depth - visible, zones.sinks);
    const std::int64_t closed = std::max<std::int64_t>(0, zones.closed_for(depth) - first);
    const KvLayer kv = session.cache().layer(layer);
    const auto side = [&](std::size_t page_bytes, bool copied) {
      const std::int64_t coded = copied ? closed : visible;
      bytes += page_bytes * static_cast<std::uint64_t>(coded) / kPageTokens;
      bytes += kv.copy_page_bytes * static_cast<std::uint64_t>(visible - coded) / kPageTokens;
    };
    side(kv.key_page_bytes, kv.key_copies != nullptr);
    side(kv.value_page_bytes, kv.value_copies != nullptr);
  }
  return bytes;
}

// Of the codes that are multiplied as such.
int code_bits(const Linear& linear) {
  if (!is_coded(linear.act)) return 0;
  int bits = 8;
  for (const LinearSegment& part : linear.parts()) bits = std::min(bits, part.weight.scheme.bits);
  return bits;
}

}  // namespace

std::string bench_test_name(const BenchTest& test) {
  const std::string prompt = test.prompt > 0 ? "pp" + std::to_string(test.prompt) : "";
  std::string generated = test.generated > 0 ? "tg" + std::to_string(test.generated) : "";
  if (test.sequences > 1) generated += "x" + std::to_string(test.sequences);
  return prompt + (!prompt.empty() && !generated.empty() ? "+" : "") + generated;
}

BenchWork bench_work(Session& session, const BenchTest& test) {
  BenchWork work;
  work.weight_bytes = session.weights().bytes_per_token();
  const ModelConfig& config = session.transformer().config();
  work.kv_bytes = cache_bytes(session, test.depth) * static_cast<std::uint64_t>(test.sequences);
  work.block_operations = 2.0 * static_cast<double>(block_linear_parameters(config));
  work.head_operations = 2.0 * static_cast<double>(config.vocab * config.width);
  const Weights& weights = session.weights();
  work.block_bits = code_bits(weights.blocks[0].qkv);
  for (const Block& block : weights.blocks) {
    for (const Linear* linear : {&block.qkv, &block.o, &block.gate_up, &block.down}) {
      work.block_bits = std::min(work.block_bits, code_bits(*linear));
    }
  }
  work.head_bits = code_bits(weights.head);
  work.batch_tokens = session.limits().batch_tokens;
  return work;
}

std::vector<double> time_bench_test(Session& session, const BenchTest& test, int runs,
                                    const std::function<void(int)>& after_run) {
  require(runs > 0, ErrorKind::bad_setting, "bench: nothing to run");
  constexpr int kWarmSteps = 5;  // a prompt, and enough for the generation path
  BenchSteps steps(session, test, false);
  for (int step = 0; step < kWarmSteps && steps.next(); ++step) {
  }
  std::vector<double> seconds;
  for (int run = 0; run < runs; ++run) {
    steps.rewind();
    const Stopwatch watch;
    while (steps.next()) {
    }
    seconds.push_back(watch.seconds());
    after_run(run + 1);
  }
  return seconds;
}

BenchNumbers bench_numbers(const BenchTest& test, const BenchWork& work,
                           const std::vector<double>& seconds, const MachineLimits& limits) {
  ensure(!seconds.empty(), "bench: no runs");
  const auto [fastest, slowest] = std::minmax_element(seconds.begin(), seconds.end());
  const auto tokens = static_cast<double>(test.tokens());
  const double typical = median(seconds);
  // A prompt reads the weights once for each batch, generation once for each token.
  const std::int64_t batches = (test.prompt + work.batch_tokens - 1) / work.batch_tokens;
  const double prompt_bytes =
      static_cast<double>(batches) * static_cast<double>(work.bytes_per_token());
  const double generated_bytes =
      static_cast<double>(test.generated) * static_cast<double>(work.bytes_per_token());
  const double prompt_seconds =
      test.prompt == 0
          ? 0
          : static_cast<double>(test.prompt) * work.block_operations / 1e9 / limits.compute_gops;
  double generated_seconds = test.generated == 0 ? 0 : generated_bytes / 1e9 / limits.read_gbps;
  if (test.sequences > 1) {
    const double head_gops = limits.head_gops > 0 ? limits.head_gops : limits.compute_gops;
    generated_seconds += tokens * work.block_operations / 1e9 / limits.compute_gops;
    generated_seconds += tokens * work.head_operations / 1e9 / head_gops;
  }

  BenchNumbers numbers;
  numbers.tps = tokens / typical;
  numbers.tps_min = tokens / *slowest;
  numbers.tps_max = tokens / *fastest;
  numbers.gbps = (prompt_bytes + generated_bytes) / typical / 1e9;
  numbers.gops = work.block_operations * numbers.tps / 1e9;
  if (limits.read_gbps == 0 && limits.compute_gops == 0) return numbers;
  numbers.share = (prompt_seconds + generated_seconds) / typical;
  if (test.generated == 0) {
    numbers.limit_kind = limits.compute_kind;
    numbers.limit = limits.compute_gops;
  } else if (test.prompt == 0 && test.sequences == 1) {
    numbers.limit_kind = "read";
    numbers.limit = limits.read_gbps;
  } else {
    numbers.limit_kind = test.prompt > 0 ? "compute, then read" : "read, then compute";
    numbers.limit = tokens / (prompt_seconds + generated_seconds);
  }
  return numbers;
}

}  // namespace leq
