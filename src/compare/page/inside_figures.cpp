// Figures about model internals: layers, distributions, hidden states, curves.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "compare/analysis.h"
#include "compare/page/figures.h"
#include "report/charts/charts.h"

namespace leq {
namespace {

// The specs for which the group has results.
std::vector<std::string> measured(const Json& results, const std::string& group,
                                  std::vector<std::string> specs) {
  std::erase_if(specs, [&](const std::string& spec) {
    return !results.contains(group) || !results[group].contains(spec);
  });
  return specs;
}

// The unquantized model and a few candidates, each in a different colour.
std::vector<std::string> base_and_few(const Json& results, const std::string& group) {
  std::vector<std::string> specs = featured_specs(results, 3);
  specs.insert(specs.begin(), "base");
  return measured(results, group, specs);
}

std::string depth_name(const Json& row) {
  const auto layer = row["layer"].get<std::int64_t>();
  return layer < 0 ? "emb" : std::to_string(layer);
}

Figure layer_heat(const Json& results, const char* key, const std::string& title,
                  const std::string& caption) {
  HeatChart chart;
  chart.title = title;
  chart.column_label = "after layer";
  for (const std::string& spec : measured(results, "layers", compared_specs(results, false))) {
    chart.rows.push_back(spec);
    auto& cells = chart.cells.emplace_back();
    chart.columns.clear();
    for (const Json& row : results["layers"][spec]["layers"]) {
      if (!row.contains(key)) continue;  // the embedding has no KL
      chart.columns.push_back(depth_name(row));
      const bool there = row[key].is_number() && row[key].get<double>() > 0;
      cells.push_back(there ? std::optional(row[key].get<double>()) : std::nullopt);
    }
  }
  if (chart.columns.size() > 14) {
    chart.numbers = false;
    chart.cell_width = 20;
  }
  return {title, heat_chart(chart), caption};
}

Figure bound_figure(const Json& results, const std::string& spec) {
  const std::tuple<const char*, const char*, int, bool> lines[] = {
      {"measured error", "share_error", 1, false},
      {"sum with measured gains", "share_bound", 2, false},
      {"L e, as the theorem says", "share_linear", 3, true},
      {"C^L, as its proof says", "share_worst", 4, true}};
  LineChart chart;
  chart.title = "Error over depth, " + spec;
  chart.x = {"after layer (-1: the embedding)", false};
  chart.y = {"share of the last hidden states", true};
  for (const auto& [name, key, colour, dashed] : lines) {
    ChartSeries series = {name, {}, colour, dashed, !dashed};
    for (const Json& row : results["layers"][spec]["layers"]) {
      const double value = row[key].get<double>();
      if (value > 0) {
        series.points.push_back({static_cast<double>(row["layer"].get<std::int64_t>()), value});
      }
    }
    chart.series.push_back(std::move(series));
  }
  return {chart.title, line_chart(chart), ""};
}

ChartSeries histogram_series(const std::string& name, const Json& counts, int colour) {
  ChartSeries series = {name, {}, colour, false, false};
  double total = 0;
  for (const Json& count : counts) total += count.get<double>();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double at = -4 + 8 * (static_cast<double>(i) + 0.5) / static_cast<double>(counts.size());
    series.points.push_back({at, counts[i].get<double>() / total});
  }
  return series;
}

Figure weight_figure(const Json& results, const std::string& part) {
  LineChart chart;
  chart.title = "Weights of " + part + ", middle layer";
  chart.x = {"weight, in standard deviations of its own tensor", false};
  chart.y = {"share of the weights", false};
  int colour = 0;
  for (const std::string& spec : base_and_few(results, "weights")) {
    for (const Json& entry : results["weights"][spec]["parts"]) {
      if (entry["part"].text() != part) continue;
      chart.series.push_back(histogram_series(spec, entry["counts"], colour));
    }
    ++colour;
  }
  return {chart.title, line_chart(chart), ""};
}

// Inputs in the middle layer, before quantization and as the quantized linears read them.
Figure input_figure(const Json& results, const std::string& site) {
  LineChart chart;
  chart.title = "Inputs of " + site + ", middle layer";
  chart.x = {"input, in units of its own RMS", false};
  chart.y = {"share of the inputs", true};
  const std::int64_t layer = results["model"]["layers"].get<std::int64_t>() / 2;
  for (const std::string& spec : base_and_few(results, "activations")) {
    for (const Json& entry : results["activations"][spec]["sites"]) {
      if (entry["site"].text() != site || entry["layer"].get<std::int64_t>() != layer) continue;
      const int colour = static_cast<int>(chart.series.size());
      chart.series.push_back(histogram_series(spec, entry["counts"], colour));
    }
  }
  return {chart.title, line_chart(chart),
          "base: as they are; the others: as the method folds and rounds them. The outer bins hold "
          "all that lies beyond."};
}

Figure outlier_figure(const Json& sites) {
  HeatChart chart;
  chart.title = "Outlier channels: largest input of a channel, multiples of the median";
  chart.column_label = "stretches of neighbouring channels";
  chart.numbers = false;
  chart.cell_width = 10;
  chart.cell_height = sites.size() > 40 ? 8 : 14;
  for (const Json& site : sites) {
    chart.rows.push_back(std::to_string(site["layer"].get<std::int64_t>()) + " " +
                         site["site"].text());
    auto& cells = chart.cells.emplace_back();
    for (const Json& value : site["channels"]) cells.emplace_back(value.get<double>());
    while (chart.columns.size() < cells.size()) {
      const std::size_t at = chart.columns.size();
      chart.columns.push_back(at % 8 == 0 ? std::to_string(at) : "");
    }
  }
  return {chart.title, heat_chart(chart),
          "Rows are the inputs of each layer's linears. Stripes that go down the map are channels "
          "that stand out in every layer."};
}

struct CurveStyle {
  std::string title, x, y;
  bool log_x = true, log_y = true;
};

// One line for each candidate of a group whose entries are lists of points.
Figure curve(const Json& group, const CurveStyle& style, const char* x, const char* y,
             const char* error) {
  LineChart chart;
  chart.title = style.title;
  chart.x = {style.x, style.log_x};
  chart.y = {style.y, style.log_y};
  int others = 0;
  for (const auto& [spec, rows] : group.items()) {
    ChartSeries series = {spec, {}, spec == "base" ? 0 : ++others};
    for (const Json& row : rows) {
      ChartPoint point = {row[x].get<double>(), row[y].get<double>()};
      if (error != nullptr) {
        point.low = point.y - 1.96 * row[error].get<double>();
        point.high = point.y + 1.96 * row[error].get<double>();
      }
      series.points.push_back(point);
    }
    if (std::string_view(y) != "kl_mean" || spec != "base") {
      chart.series.push_back(std::move(series));
    }
  }
  return {chart.title, line_chart(chart), ""};
}

Figure calibration_figure(const Json& results) {
  LineChart chart;
  chart.title = "KL divergence over calibration windows";
  chart.x = {"windows of calibration text", true};
  chart.y = {"KL divergence, nats", true};
  std::map<std::string, std::map<std::int64_t, std::string>> curves;
  for (const auto& [spec, entry] : results["calibration"].items()) {
    const std::size_t mark = spec.rfind('#');
    curves[spec.substr(0, mark)][*parse_int(spec.substr(mark + 1))] = spec;
  }
  int colour = 1;
  for (const auto& [method, points] : curves) {
    ChartSeries series = {method, {}, colour++};
    for (const auto& [windows, spec] : points) {
      const MeanInterval kl = kl_interval(results, "calibration", spec);
      series.points.push_back(
          {static_cast<double>(windows), kl.mean, kl.interval.low, kl.interval.high});
    }
    chart.series.push_back(std::move(series));
  }
  return {chart.title, line_chart(chart),
          "Bars: bootstrap intervals over the windows of the text that is measured; the paired "
          "test in the claims is sharper."};
}

Figure input_scale_figure(const Json& results) {
  IntervalChart chart;
  chart.title = "Scales of the inputs";
  chart.x = {"KL divergence, nats", true};
  int colour = 1;
  for (const auto& [spec, entry] : results["inputs"].items()) {
    const MeanInterval kl = kl_interval(results, "inputs", spec);
    chart.rows.push_back({spec, kl.mean, kl.interval.low, kl.interval.high, colour++});
  }
  return {
      chart.title, interval_chart(chart),
      "row: a scale for each token; g128: for 128 columns of it; tensor: one, from calibration; "
      "online: one that follows the inputs."};
}

Figure ranks_figure(const Json& group) {
  LineChart chart;
  chart.title = "Speed over ranks of this machine";
  chart.x = {"ranks", true};
  chart.y = {"times the speed of one rank", false};
  for (const auto& [spec, rows] : group.items()) {
    for (const char* test : {"prompt", "generation"}) {
      ChartSeries series = {spec + ", " + test, {}, static_cast<int>(chart.series.size())};
      for (const Json& row : rows) {
        series.points.push_back(
            {row["ranks"].get<double>(),
             row[test]["tps"].get<double>() / rows[0][test]["tps"].get<double>()});
      }
      chart.series.push_back(std::move(series));
    }
  }
  return {chart.title, line_chart(chart),
          "Ranks divide the same cores, so that 1 is all that there is to win; logits are equal."};
}

std::vector<Figure> weight_figures(const Json& results) {
  std::vector<Figure> figures;
  const Json& parts = results["weights"]["base"]["parts"];
  for (const std::size_t at : {std::size_t{0}, parts.size() - 1}) {
    figures.push_back(weight_figure(results, parts[at]["part"].text()));
  }
  figures.back().caption =
      "Few codes show as spikes: they are the values that the type has. Tails beyond 4 deviations "
      "are counted in the last bin.";
  return figures;
}

Figure bits_figure(const Json& results) {
  std::map<std::string, std::map<std::int64_t, double>> bits;
  for (const auto& [spec, entry] : results["bits"].items()) {
    for (const Json& unit : entry["units"]) {
      bits[unit["kind"].text()][unit["layer"].get<std::int64_t>()] = unit["bits"].get<double>();
    }
  }
  HeatChart chart;
  chart.title = "Bits chosen by a search";
  chart.logarithmic = false;
  chart.column_label = "layer";
  for (const auto& [kind, layers] : bits) {
    chart.rows.push_back(kind);
    chart.cells.emplace_back();
    chart.columns.clear();
    for (const auto& [layer, count] : layers) {
      chart.columns.push_back(std::to_string(layer));
      chart.cells.back().emplace_back(count);
    }
  }
  if (chart.columns.size() > 14) chart.cell_width = 22;
  return {chart.title, heat_chart(chart),
          "By measured sensitivity, at most 4.25 bits on average, scales included."};
}

}  // namespace

std::vector<Figure> layer_figures(const Json& results) {
  std::vector<Figure> figures;
  if (!results.contains("layers")) return figures;
  figures.push_back(layer_heat(results, "kl_alone", "KL divergence with one layer quantized",
                               "Nats, where this layer alone is taken from the quantized file."));
  figures.push_back(layer_heat(results, "error", "Error of the hidden states over depth",
                               "Relative to the hidden states of the unquantized model; the error "
                               "of layer L is what all layers up to L have made."));
  for (const std::string& spec : measured(results, "layers", featured_specs(results, 4))) {
    figures.push_back(bound_figure(results, spec));
  }
  if (results.contains("bits")) figures.push_back(bits_figure(results));
  return figures;
}

std::vector<Figure> distribution_figures(const Json& results) {
  std::vector<Figure> figures;
  if (!measured(results, "activations", {"base"}).empty()) {
    const Json& sites = results["activations"]["base"]["sites"];
    figures.push_back(outlier_figure(sites));
    const std::int64_t layer = results["model"]["layers"].get<std::int64_t>() / 2;
    for (const Json& site : sites) {
      if (site["layer"].get<std::int64_t>() != layer) continue;
      figures.push_back(input_figure(results, site["site"].text()));
    }
  }
  if (!measured(results, "weights", {"base"}).empty()) {
    for (Figure& figure : weight_figures(results)) figures.push_back(std::move(figure));
  }
  for (Figure& figure : hidden_figures(results)) figures.push_back(std::move(figure));
  return figures;
}

std::vector<Figure> hidden_figures(const Json& results) {
  CloudChart chart;
  chart.title = "Hidden states after the last layer (PCA)";
  std::vector<std::string> specs = featured_specs(results, 3);
  specs.push_back("base");
  for (const std::string& spec : measured(results, "hidden", specs)) {
    const Json& entry = results["hidden"][spec];
    ChartSeries series = {spec + " (moved " + fixed(100 * entry["shift"].get<double>(), 1) + " %)",
                          {},
                          spec == "base" ? 0 : static_cast<int>(chart.series.size()) + 1};
    for (const Json& point : entry["points"]) {
      series.points.push_back({point[0].get<double>(), point[1].get<double>()});
    }
    chart.x.label =
        "axis 1, " + fixed(100 * entry["explained"][0].get<double>(), 1) + " % of the variance";
    chart.y.label = "axis 2, " + fixed(100 * entry["explained"][1].get<double>(), 1) + " %";
    chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return {};
  return {
      {chart.title, cloud_chart(chart),
       "A point for each token but the first, whose states are many times larger than all others "
       "in many models (massive activations) and would be an axis of their own. Both axes are "
       "those of the unquantized model; \"moved\" is the mean distance from its points as a "
       "share of their spread. Unlike the paper's t-SNE, distances mean something."}};
}

std::vector<Figure> curve_figures(const Json& results) {
  std::vector<Figure> figures;
  if (results.contains("calibration")) figures.push_back(calibration_figure(results));
  if (results.contains("inputs")) figures.push_back(input_scale_figure(results));
  if (results.contains("contexts")) {
    const Json& group = results["contexts"];
    figures.push_back(curve(group, {"Perplexity over context", "positions", "perplexity"},
                            "context", "ppl", nullptr));
    figures.push_back(curve(group,
                            {"KL divergence over context", "positions", "KL divergence, nats"},
                            "context", "kl_mean", "kl_mean_stderr"));
  }
  if (results.contains("batches")) {
    figures.push_back(curve(results["batches"],
                            {"Generation over sequences at once", "sequences", "tokens per second"},
                            "sequences", "tps", nullptr));
  }
  if (results.contains("ranks")) figures.push_back(ranks_figure(results["ranks"]));
  return figures;
}

}  // namespace leq
