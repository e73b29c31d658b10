#include "compare/layer_errors.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "compare/layer_states.h"
#include "eval/part_divergence.h"

namespace leq {
namespace {

// Sums over all windows and channels at one depth.
struct DepthSums {
  double signal = 0;     // |H|^2
  double error = 0;      // |H' - H|^2 after the layer
  double entering = 0;   // |H' - H|^2 before the layer
  double local = 0;      // |f'(H) - f(H)|^2
  double passed = 0;     // |f(H') - f(H)|^2
  double product = 0;    // H . H'
  double quantized = 0;  // |H'|^2
};

double squared_distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum;
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  }
  return sum;
}

class LayerMeter {
 public:
  LayerMeter(const Model& base, Session& base_session, const Model& model, Session& session)
      : base_(base), base_session_(base_session), model_(model), session_(session) {
    sums_.resize(static_cast<std::size_t>(base.config().layer_count()) + 1);
  }

  void add(std::span<const Token> tokens) {
    std::vector<float> exact = embedded_states(base_, tokens);
    std::vector<float> quantized = embedded_states(model_, tokens);
    add_depth(sums_[0], exact, quantized);
    sums_[0].local += squared_distance(exact, quantized);
    for (std::int64_t layer = 0; layer < base_.config().layer_count(); ++layer) {
      DepthSums& sums = sums_[static_cast<std::size_t>(layer) + 1];
      const std::vector<float> exact_out = states_after(base_session_, layer, exact);
      sums.local += squared_distance(states_after(session_, layer, exact), exact_out);
      sums.passed += squared_distance(states_after(base_session_, layer, quantized), exact_out);
      sums.entering += squared_distance(quantized, exact);
      quantized = states_after(session_, layer, std::move(quantized));
      exact = exact_out;
      add_depth(sums, exact, quantized);
    }
  }

  // Results [L + 1]: first for the embedding, then for each layer.
  Json rows() const {
    Json rows = Json::array();
    double bound = 0, worst_gain = 0, worst_local = 0;
    for (const DepthSums& sums : sums_) worst_local = std::max(worst_local, std::sqrt(sums.local));
    for (std::size_t i = 1; i < sums_.size(); ++i)
      worst_gain = std::max(worst_gain, gain(sums_[i]));
    double powers = 0;
    const double last = std::sqrt(sums_.back().signal);
    for (std::size_t i = 0; i < sums_.size(); ++i) {
      const DepthSums& sums = sums_[i];
      const double norm = std::sqrt(sums.signal);
      bound = std::sqrt(sums.local) + gain(sums) * bound;
      powers = 1 + worst_gain * powers;
      rows.push_back(
          {{"layer", static_cast<std::int64_t>(i) - 1},
           {"local", std::sqrt(sums.local) / norm},
           {"gain", gain(sums)},
           {"error", std::sqrt(sums.error) / norm},
           {"share_error", std::sqrt(sums.error) / last},
           {"share_bound", bound / last},
           {"share_linear", worst_local * static_cast<double>(i + 1) / last},
           {"share_worst", worst_local * powers / last},
           {"sqnr_db", sums.error > 0 ? Json(10 * std::log10(sums.signal / sums.error)) : Json()},
           {"cosine", sums.product / std::sqrt(sums.signal * sums.quantized)}});
    }
    return rows;
  }

 private:
  static double gain(const DepthSums& sums) {
    return sums.entering > 0 ? std::sqrt(sums.passed / sums.entering) : 0;
  }
  static void add_depth(DepthSums& sums, std::span<const float> exact,
                        std::span<const float> quantized) {
    sums.signal += dot(exact, exact);
    sums.quantized += dot(quantized, quantized);
    sums.product += dot(exact, quantized);
    sums.error += squared_distance(exact, quantized);
  }

  const Model& base_;
  Session& base_session_;
  const Model& model_;
  Session& session_;
  std::vector<DepthSums> sums_;
};

// The KL divergence of the base model when one layer is replaced by the candidate's.
Estimate kl_of_layer(Workbench& bench, const Model& base, const Model& model, std::int64_t layer,
                     const CompareWindows& windows, const RunLimits& limits) {
  Estimate kl;
  with_layer_of(base, model, layer, *bench.workers().backend, limits, [&](Session& session) {
    kl = bench.measure(session, windows).summarize(windows.settings.protocol).kl_mean;
  });
  return kl;
}

}  // namespace

Json measure_layers(Workbench& bench, const Candidate& candidate) {
  const Candidate base_candidate = parse_candidate(kBaseMethod);
  const std::unique_ptr<Model> base = bench.open(base_candidate);
  const std::unique_ptr<Model> model = bench.open(candidate);
  const CompareSizes& sizes = bench.job().sizes;
  const CompareWindows windows = bench.short_windows(sizes.layer_tokens, sizes.layer_windows);
  const std::int64_t length = windows.settings.window;
  Json rows;
  {
    Session base_session = bench.session(base_candidate, *base, length, 1);
    Session session = bench.session(candidate, *model, length, 1);
    LayerMeter meter(*base, base_session, *model, session);
    for (const Window& window : windows.windows) {
      bench.require_not_stopped();
      meter.add(bench.tokens_of(window));
    }
    rows = meter.rows();
  }
  RunLimits limits = bench.limits(base_candidate, base->config(), length, kOutputRows);
  for (std::int64_t layer = 0; layer < base->config().layer_count(); ++layer) {
    limits.kv_layers = {{layer, layer, candidate.cache, candidate.cache}};
    const Estimate kl = kl_of_layer(bench, *base, *model, layer, windows, limits);
    rows[layer + 1]["kl_alone"] = kl.value;
    rows[layer + 1]["kl_alone_stderr"] = kl.error;
  }
  return {{"layers", rows}, {"windows", std::ssize(windows.windows)}, {"tokens", length}};
}

}  // namespace leq
