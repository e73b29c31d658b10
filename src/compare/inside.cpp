#include "compare/inside.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/stopwatch.h"
#include "compare/layer_states.h"
#include "compare/principal_axes.h"
#include "tensor/pack.h"

namespace leq {
namespace {

constexpr int kBins = 64;
constexpr double kBinRange = 4;  // standard deviations to either side
constexpr std::int64_t kMostBands = 64;
constexpr double kOutlierRatio = 6;  // LLM.int8 uses an absolute 6 on normed inputs

// Sums of powers of values, for moments, and a histogram in units of `scale`, which is set later.
struct Moments {
  double count = 0, sum = 0, squares = 0, cubes = 0, fourths = 0, largest = 0;

  void add(double value) {
    count += 1;
    sum += value;
    squares += value * value;
    cubes += value * value * value;
    fourths += value * value * value * value;
    largest = std::max(largest, std::abs(value));
  }
  double rms() const { return std::sqrt(squares / count); }
  double mean() const { return sum / count; }
  double variance() const { return squares / count - mean() * mean(); }
  double skewness() const {
    const double m = mean(), v = variance();
    return v > 0 ? (cubes / count - 3 * m * squares / count + 2 * m * m * m) / std::pow(v, 1.5) : 0;
  }
  double kurtosis() const {  // 3 for a normal distribution
    const double m = mean(), v = variance();
    const double fourth =
        fourths / count - 4 * m * cubes / count + 6 * m * m * squares / count - 3 * m * m * m * m;
    return v > 0 ? fourth / (v * v) : 0;
  }
};

std::size_t bin_of(double value, double deviation) {
  const double place = (value / deviation + kBinRange) / (2 * kBinRange) * kBins;
  return static_cast<std::size_t>(std::clamp(place, 0.0, kBins - 1.0));
}

struct SiteInputs {
  std::int64_t layer = 0;
  std::string name;
  Moments moments;
  double unit = 0;  // unit of the histogram: RMS of the first rows
  std::vector<std::int64_t> counts = std::vector<std::int64_t>(kBins);
  std::vector<float> absmax;  // [K]
};

// Row t as a linear reads its input: floats, or codes times scales (in the CPU backend's layout).
void read_row(const Rows& rows, std::int64_t t, std::vector<float>& out) {
  const auto width = static_cast<std::size_t>(rows.width);
  out.resize(width);
  if (!is_coded(rows.format.act)) {
    std::copy_n(rows.values + t * rows.value_stride, width, out.begin());
    return;
  }
  const std::uint8_t* codes = rows.codes + t * rows.code_stride;
  const float* scales = rows.scales + t * rows.scale_stride;
  const int columns = scale_columns(rows.format.act);
  for (std::size_t k = 0; k < width; ++k) {
    const int code = rows.format.offset_codes ? codes[k] - 128 : static_cast<std::int8_t>(codes[k]);
    const std::size_t group = columns == 0 ? 0 : k / static_cast<std::size_t>(columns);
    out[k] = scales[group] * static_cast<float>(code);
  }
}

class InputObserver : public Observer {
 public:
  bool see(const LayerLinear& linear, const Rows& input, std::int64_t tokens) override {
    SiteInputs& site = sites_[{layer_, linear.site}];
    site.layer = layer_;
    site.name = linear.site_name;
    site.absmax.resize(static_cast<std::size_t>(input.width));
    for (std::int64_t t = 0; t < tokens; ++t) {
      read_row(input, t, row_);
      for (std::size_t k = 0; k < row_.size(); ++k) {
        site.moments.add(row_[k]);
        site.absmax[k] = std::max(site.absmax[k], std::abs(row_[k]));
      }
    }
    if (site.unit == 0) site.unit = std::max(site.moments.rms(), 1e-30);
    for (std::int64_t t = 0; t < tokens; ++t) {
      read_row(input, t, row_);
      for (const float value : row_) ++site.counts[bin_of(value, site.unit)];
    }
    return true;
  }
  void at_layer(std::int64_t layer) { layer_ = layer; }
  const std::map<std::pair<std::int64_t, std::size_t>, SiteInputs>& sites() const { return sites_; }

 private:
  std::int64_t layer_ = 0;
  std::vector<float> row_;
  std::map<std::pair<std::int64_t, std::size_t>, SiteInputs> sites_;
};

// Channel maxima relative to the median channel; of each stretch only the largest is kept.
Json channel_ratios(const SiteInputs& site, double middle) {
  const std::int64_t channels = std::ssize(site.absmax);
  const std::int64_t bands = std::min(channels, kMostBands);
  std::vector<double> ratios;
  for (std::int64_t s = 0; s < bands; ++s) {
    const auto first = site.absmax.begin() + s * channels / bands;
    const auto last = site.absmax.begin() + (s + 1) * channels / bands;
    ratios.push_back(*std::max_element(first, last) / middle);
  }
  return ratios;
}

Json site_json(const SiteInputs& site) {
  const double middle = median({site.absmax.begin(), site.absmax.end()});
  const double floor = middle > 0 ? middle : 1;
  const auto outliers = std::ranges::count_if(
      site.absmax, [&](float value) { return value > kOutlierRatio * floor; });
  return {{"layer", site.layer},
          {"site", site.name},
          {"absmax", site.moments.largest},
          {"rms", site.moments.rms()},
          {"kurtosis", site.moments.kurtosis()},
          {"outliers", static_cast<std::int64_t>(outliers)},
          {"width", std::ssize(site.absmax)},
          {"largest_ratio", *std::ranges::max_element(site.absmax) / floor},
          {"channels", channel_ratios(site, floor)},
          {"counts", site.counts}};
}

Json weight_json(const std::string& part, const WeightView& view) {
  Moments moments;
  std::vector<float> row(static_cast<std::size_t>(view.columns));
  for (std::int64_t r = 0; r < view.rows; ++r) {
    unpack_row(view, r, row);
    for (const float value : row) moments.add(value);
  }
  const double deviation = std::sqrt(std::max(moments.variance(), 1e-30));
  std::vector<std::int64_t> counts(kBins);
  for (std::int64_t r = 0; r < view.rows; ++r) {
    unpack_row(view, r, row);
    for (const float value : row) ++counts[bin_of(value, deviation)];
  }
  return {{"part", part},
          {"counts", counts},
          {"kurtosis", moments.kurtosis()},
          {"skewness", moments.skewness()},
          {"deviation", deviation},
          {"largest", moments.largest / deviation}};
}

}  // namespace

Json measure_activations(Workbench& bench, const Candidate& candidate) {
  const std::unique_ptr<Model> model = bench.open(candidate);
  const CompareWindows windows = bench.short_windows(bench.job().sizes.layer_tokens, 1);
  const Window& window = windows.windows.front();
  Session session = bench.session(candidate, *model, window.count, 1);
  InputObserver observer;
  session.transformer().observe(&observer);
  visit_layer_states(*model, session, bench.tokens_of(window), [&](std::int64_t layer, auto) {
    bench.require_not_stopped();
    observer.at_layer(layer + 1);
  });
  session.transformer().observe(nullptr);
  Json rows = Json::array();
  for (const auto& [place, site] : observer.sites()) rows.push_back(site_json(site));
  return {{"sites", rows}, {"tokens", window.count}};
}

Json measure_weights(Workbench& bench, const Candidate& candidate) {
  const std::unique_ptr<Model> model = bench.open(candidate);
  const std::int64_t layer = model->config().layer_count() / 2;
  Json rows = Json::array();
  for (const LinearSite& site : linear_sites(model->config(), layer)) {
    for (const LinearSpec& weight : site.weights) {
      const StoredTensor* tensor = model->file().find(layer_tensor(layer, weight.name));
      if (tensor != nullptr) rows.push_back(weight_json(weight.name, tensor->view));
    }
  }
  return {{"layer", layer}, {"parts", rows}};
}

Json measure_bits(Workbench& bench, const Candidate& candidate) {
  const std::unique_ptr<Model> model = bench.open(candidate);
  Json units = Json::array();
  for (std::int64_t layer = 0; layer < model->config().layer_count(); ++layer) {
    for (const LinearSite& site : linear_sites(model->config(), layer)) {
      const std::string name = layer_tensor(layer, site.weights.front().name);
      const StoredTensor* tensor = model->file().find(name);
      if (tensor == nullptr) continue;
      units.push_back({{"layer", layer},
                       {"kind", site.name},
                       {"name", layer_tensor(layer, site.name)},
                       {"bits", tensor->view.scheme.bits}});
    }
  }
  return {{"units", units}};
}

Json measure_hidden(Workbench& bench, const Candidate& candidate) {
  const Candidate base_candidate = parse_candidate(kBaseMethod);
  const std::unique_ptr<Model> base = bench.open(base_candidate);
  const std::unique_ptr<Model> model = bench.open(candidate);
  const CompareWindows windows = bench.short_windows(bench.job().sizes.layer_tokens, 1);
  const Window& window = windows.windows.front();
  const auto states_of = [&](const Model& of, const Candidate& which) {
    Session session = bench.session(which, of, window.count, 1);
    std::vector<float> states = visit_layer_states(of, session, bench.tokens_of(window));
    states.erase(states.begin(), states.begin() + kFirstHidden * of.config().width);
    return states;
  };
  const std::vector<float> exact = states_of(*base, base_candidate);
  const PrincipalAxes axes = principal_axes(exact, base->config().width);
  const std::vector<float> states = states_of(*model, candidate);
  Json points = Json::array();
  for (const auto& [x, y] : project(axes, states)) points.push_back(Json::array({x, y}));
  return {{"points", points},
          {"explained", {axes.explained[0], axes.explained[1]}},
          {"shift", mean_shift(axes, exact, states)}};
}

}  // namespace leq
