// Figures about candidates as a whole: size, speed, accuracy.
#include "compare/page/figures.h"

#include <algorithm>
#include <cmath>

#include "backend/steps.h"
#include "compare/analysis.h"
#include "report/charts/charts.h"

namespace leq {
namespace {

// The median speed of a candidate (larger is better); 0 if it was not measured.
double median_speed(const Json& results, const std::string& spec, const char* test) {
  if (!results.contains("speed") || !results["speed"].contains(spec)) return 0;
  return results["speed"][spec][test]["tps"].get<double>();
}

struct RadarNumbers {
  double accuracy, prompt, generation, memory, setup, calibration;
};

RadarNumbers radar_numbers(const Json& results, const std::string& spec) {
  const auto number = [&](const char* group, const char* key) {
    return result_number(results, group, spec, key).value_or(0);
  };
  constexpr double kShortest = 0.1;  // seconds; shorter times are clamped
  return {1 / number("quality", "ppl"),
          median_speed(results, spec, "prompt"),
          median_speed(results, spec, "generation"),
          1 / std::max(1.0, number("speed", "memory_bytes")),
          1 / std::max(kShortest, number("file", "setup_seconds")),
          1 / (1 + number("file", "calibration_tokens") / 1000)};
}

std::vector<double> radar_values(const RadarNumbers& one, const RadarNumbers& best) {
  return {one.accuracy / best.accuracy,     one.prompt / best.prompt,
          one.generation / best.generation, one.memory / best.memory,
          one.setup / best.setup,           one.calibration / best.calibration};
}

Figure radar_figure(const Json& results) {
  RadarChart chart;
  chart.title = "Radar of six measures";
  chart.axes = {"perplexity", "prompt t/s", "generation t/s", "memory", "setup", "calibration"};
  RadarNumbers best = {};
  for (const std::string& spec : compared_specs(results, true)) {
    const RadarNumbers one = radar_numbers(results, spec);
    best = {std::max(best.accuracy, one.accuracy),     std::max(best.prompt, one.prompt),
            std::max(best.generation, one.generation), std::max(best.memory, one.memory),
            std::max(best.setup, one.setup),           std::max(best.calibration, one.calibration)};
  }
  std::vector<std::string> specs = featured_specs(results, 4);
  specs.insert(specs.begin(), "base");
  int colour = 0;
  for (const std::string& spec : specs) {
    chart.series.push_back({spec, radar_values(radar_numbers(results, spec), best), colour++});
  }
  return {
      "As the paper's Figure 4", radar_chart(chart),
      "Each axis is the best value divided by, or into, the method's own: 1 on the rim is the "
      "best of all methods. Areas mislead: they depend on the order of the axes, and a "
      "perplexity that matters moves a point by a hair. The chart of size against KL does not."};
}

Figure spindle(const Json& results, const std::string& title, const std::string& unit,
               const std::function<double(const std::string&)>& value) {
  BarChart chart;
  chart.title = title;
  chart.unit = unit;
  chart.centred = true;
  for (const std::string& spec : compared_specs(results, true)) {
    chart.rows.push_back({spec, {value(spec)}});
  }
  return {title, bar_chart(chart), ""};
}

}  // namespace

int colour_of(const Json& results, const std::string& spec) {
  const std::vector<std::string> specs = compared_specs(results, true);
  const auto found = std::ranges::find(specs, spec);
  const auto place = static_cast<int>(found - specs.begin());
  return place == 0 ? 0 : 1 + (place - 1) % (kChartColours - 1);
}

std::vector<std::string> featured_specs(const Json& results, std::size_t most) {
  std::vector<std::string> specs;
  for (const char* method : {"smoothquant", "absmax", "gptq", "awq", "q4", "q8", ""}) {
    for (const std::string& spec : compared_specs(results, false)) {
      const bool there = std::ranges::find(specs, spec) != specs.end();
      if (specs.size() >= most) return specs;
      if (!there && spec.starts_with(method)) {
        specs.push_back(spec);
        if (*method != 0) break;
      }
    }
  }
  return specs;
}

Figure pareto_figure(const Json& results, double width, double height) {
  ScatterChart chart;
  chart.title = "Size of the file against KL divergence";
  chart.x = {"file, MB (smaller is better)", true};
  chart.y = {"KL divergence from the unquantized model, nats", true};
  chart.frontier = true;
  chart.width = width;
  chart.height = height;
  for (const std::string& spec : compared_specs(results, false)) {
    const MeanInterval kl = kl_interval(results, "quality", spec);
    const double bytes = *result_number(results, "file", spec, "file_bytes");
    // A candidate that quantizes only the KV cache does not change the file size.
    if (bytes >= *result_number(results, "file", "base", "file_bytes")) continue;
    chart.points.push_back({spec,
                            {bytes / 1e6, kl.mean, kl.interval.low, kl.interval.high},
                            colour_of(results, spec)});
  }
  return {
      chart.title, scatter_chart(chart),
      "Bars: 95 % bootstrap intervals over windows. The staircase joins the methods that no "
      "other beats in both size and KL. Methods that quantize the cache alone change no file and "
      "are not in it."};
}

std::vector<Figure> overview_figures(const Json& results) {
  std::vector<Figure> figures = {pareto_figure(results, 520, 400)};
  if (results.contains("speed")) figures.push_back(radar_figure(results));
  return figures;
}

std::vector<Figure> spindle_figures(const Json& results) {
  if (!results.contains("speed")) return {};
  const auto number = [&](const char* group, const char* key) {
    return [&results, group, key](const std::string& spec) {
      return result_number(results, group, spec, key).value_or(0);
    };
  };
  const auto generation = [&](const std::string& spec) {
    return median_speed(results, spec, "generation");
  };
  std::vector<Figure> figures = {
      spindle(results, "Perplexity", "smaller is better", number("quality", "ppl")),
      spindle(results, "Generation", "tokens per second", generation),
      spindle(results, "Memory", "MB, weights, cache and scratch",
              [&](const std::string& spec) { return number("speed", "memory_bytes")(spec) / 1e6; }),
      spindle(results, "Speed divided by perplexity", "the paper's \"efficiency score\"",
              [&](const std::string& spec) {
                return generation(spec) / number("quality", "ppl")(spec);
              })};
  figures.back().caption =
      "A ratio of two unlike things: it rewards whatever is fast, however wrong.";
  return figures;
}

std::vector<Figure> latency_figures(const Json& results) {
  std::vector<Figure> figures;
  if (!results.contains("speed")) return figures;
  for (const char* test : {"generation", "prompt"}) {
    BarChart chart;
    chart.title = std::string("Latency by part, ") + test;
    chart.unit = std::string(test) == "prompt" ? "ms for the prompt" : "ms for a token";
    chart.width = 560;
    for (const std::string_view part : kStepPartNames) chart.parts.emplace_back(part);
    for (const std::string& spec : compared_specs(results, true)) {
      if (!results["speed"].contains(spec)) continue;
      const Json& parts = results["speed"][spec][std::string(test) + "_parts"];
      BarRow row = {spec, {}};
      for (const std::string_view part : kStepPartNames) {
        row.parts.push_back(parts[part].get<double>());
      }
      chart.rows.push_back(std::move(row));
    }
    figures.push_back({chart.title, bar_chart(chart),
                       "Quantization of inputs is part of the norm, attention or SwiGLU that makes "
                       "them. Weights are read within the products: load is the embedding's rows. "
                       "Communication is that between ranks, and there is one."});
  }
  return figures;
}

std::vector<Figure> choice_figures(const Json& results) {
  std::vector<Figure> figures;
  for (const Json& task : results["tasks"]) {
    const std::string group = "choices " + task.text();
    if (!results.contains(group)) continue;
    for (const std::string key : {"acc", "acc_norm"}) {
      IntervalChart chart;
      chart.title = task.text() + ", " + key;
      chart.x.label = "share of right answers";
      for (const std::string& spec : compared_specs(results, true)) {
        const auto number = [&](const std::string& name) {
          return *result_number(results, group, spec, name);
        };
        if (!results[group].contains(spec)) continue;
        chart.rows.push_back({spec, number(key), number(key + "_low"), number(key + "_high"),
                              colour_of(results, spec)});
        if (spec == "base") chart.mark = number(key);
      }
      figures.push_back({chart.title, interval_chart(chart),
                         "Wilson intervals, 95 %. The dashed line is the unquantized model."});
    }
  }
  return figures;
}

}  // namespace leq
