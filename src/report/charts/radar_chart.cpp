// Radar charts.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "report/charts/chart_frame.h"

namespace leq {
namespace {

struct RadarFrame {
  double x = 0, y = 0, radius = 0;
  std::size_t axes = 0;

  std::pair<double, double> place(std::size_t axis, double value) const {
    const double angle =
        2 * std::numbers::pi * static_cast<double>(axis) / static_cast<double>(axes);
    return {x + radius * value * std::sin(angle), y - radius * value * std::cos(angle)};
  }
  std::string polygon(const std::vector<double>& values) const {
    std::string d;
    for (std::size_t i = 0; i < axes; ++i) {
      const auto [px, py] = place(i, values[i]);
      d += (d.empty() ? "M" : "L") + coordinate(px) + " " + coordinate(py);
    }
    return d + "Z";
  }
};

}  // namespace

Svg radar_chart(const RadarChart& chart) {
  std::vector<LegendEntry> entries;
  for (const RadarSeries& series : chart.series) {
    entries.push_back({series.name, series.colour, true});
  }
  const double legend = legend_height(8, chart.width - 8, entries);
  Svg svg(chart.width, chart.height + legend, chart.title);
  draw_legend(svg, 8, 0, chart.width - 8, entries);
  const RadarFrame frame = {chart.width / 2, legend + chart.height / 2 + 4, chart.height / 2 - 42,
                            chart.axes.size()};
  for (const double ring : {0.25, 0.5, 0.75, 1.0}) {
    svg.path(frame.polygon(std::vector<double>(chart.axes.size(), ring)), "grid");
  }
  for (std::size_t i = 0; i < chart.axes.size(); ++i) {
    const auto [x, y] = frame.place(i, 1);
    svg.line(frame.x, frame.y, x, y, "grid");
    const auto [tx, ty] = frame.place(i, 1.08);
    const Anchor anchor = std::abs(tx - frame.x) < 12 ? Anchor::middle
                          : tx > frame.x              ? Anchor::start
                                                      : Anchor::end;
    svg.text(tx, ty + (ty < frame.y - 12 ? -4 : 6), chart.axes[i], "small", anchor);
  }
  for (const RadarSeries& series : chart.series) {
    svg.path(frame.polygon(series.values), colour_class("line", series.colour), series.name);
  }
  return svg;
}

}  // namespace leq
