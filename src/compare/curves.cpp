#include "compare/curves.h"

#include <algorithm>
#include <cmath>

#include "compare/layer_states.h"
#include "compare/quality.h"

namespace leq {
namespace {

std::vector<Candidate> parsed(std::initializer_list<const char*> specs) {
  std::vector<Candidate> candidates;
  for (const char* spec : specs) candidates.push_back(parse_candidate(spec));
  return candidates;
}

// Rounds each channel of x [T][W] as in the paper's section on SimQuant. Returns the largest error
// of any value, as a share of its channel's (max - min) / (2^bits - 1).
double largest_share(std::span<const float> x, std::int64_t width, int bits) {
  const std::int64_t tokens = std::ssize(x) / width;
  double largest = 0;
  for (std::int64_t c = 0; c < width; ++c) {
    double low = x[static_cast<std::size_t>(c)], high = low;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const double value = x[static_cast<std::size_t>(t * width + c)];
      low = std::min(low, value);
      high = std::max(high, value);
    }
    const double step = (high - low) / (std::exp2(bits) - 1);
    if (step <= 0) continue;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const double value = x[static_cast<std::size_t>(t * width + c)];
      const double rounded = std::nearbyint((value - low) / step) * step + low;
      largest = std::max(largest, std::abs(rounded - value) / step);
    }
  }
  return largest;
}

}  // namespace

std::vector<Candidate> calibration_candidates(std::span<const std::int64_t> windows) {
  std::vector<Candidate> candidates;
  for (const char* method : {"smoothquant:int8", "gptq"}) {
    for (const std::int64_t count : windows) {
      candidates.push_back(parse_candidate(std::string(method) + "#" + std::to_string(count)));
    }
  }
  return candidates;
}

std::vector<Candidate> input_candidates() {
  return parsed({"smoothquant:int8+row", "smoothquant:int8+g128", "smoothquant:int8+tensor",
                 "smoothquant:int8+online"});
}

std::vector<Candidate> context_candidates() {
  return parsed(
      {"base", "simquant:8", "simquant:4", "simquant:2", "smoothquant:int8", "awq", "gptq"});
}

std::vector<Candidate> batch_candidates() { return parsed({"base", "smoothquant:int8", "gptq"}); }

Json measure_contexts(Workbench& bench, const Candidate& candidate) {
  const std::unique_ptr<Model> model = bench.open(candidate);
  const std::int64_t longest = std::min(model->config().context, std::ssize(bench.tokens()));
  Json rows = Json::array();
  for (const std::int64_t context : bench.job().sizes.contexts) {
    if (context > longest) continue;
    const std::int64_t count =
        std::max<std::int64_t>(1, bench.job().sizes.context_tokens / context);
    const CompareWindows windows = bench.short_windows(context, count);
    Session session = bench.session(candidate, *model, context);
    Json row = quality_of(bench, session, windows);
    rows.push_back({{"context", context},
                    {"windows", row["windows"]},
                    {"ppl", row["ppl"]},
                    {"stderr", row["stderr"]},
                    {"kl_mean", row["kl_mean"]},
                    {"kl_mean_stderr", row["kl_mean_stderr"]}});
  }
  return rows;
}

Json measure_cache_bound(Workbench& bench, const Candidate&) {
  const Candidate base = parse_candidate(kBaseMethod);
  const std::unique_ptr<Model> model = bench.open(base);
  const CompareWindows windows = bench.short_windows(bench.job().sizes.layer_tokens, 1);
  const Window& window = windows.windows.front();
  Session session = bench.session(base, *model, window.count, 1);
  Json rows = Json::array();
  walk_states(*model, session, bench.tokens_of(window), [&](std::int64_t layer, auto states) {
    if (layer < 0) return;
    Json row = {{"layer", layer}};
    for (const int bits : {8, 4, 2}) {
      row["share_" + std::to_string(bits)] = largest_share(states, model->config().width, bits);
    }
    rows.push_back(row);
  });
  return rows;
}

}  // namespace leq
