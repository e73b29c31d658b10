// Charts with one line per row: bars, intervals, heat maps.
#include <algorithm>
#include <cmath>

#include "report/charts/chart_frame.h"

namespace leq {
namespace {

constexpr double kRowStep = 26;
constexpr int kHeatSteps = 8;

template <class Rows>
double name_column(const Rows& rows) {
  double width = 40;
  for (const auto& row : rows) width = std::max(width, text_width(row.name, 11));
  return std::min(width + 12, 190.0);
}

double sum_of(const std::vector<double>& parts) {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

void draw_bar(Svg& svg, const BarChart& chart, const BarRow& row, double y, double left,
              double right, const ChartScale& scale) {
  const double total = sum_of(row.parts);
  double x = left;
  if (chart.centred) {
    x = (left + right) / 2 - (scale.place(total, left, right) - left) / 2;
  }
  for (std::size_t i = 0; i < row.parts.size(); ++i) {
    const double width = scale.place(row.parts[i], left, right) - left;
    const std::string part = i < chart.parts.size() ? " " + chart.parts[i] : "";
    svg.rect(x, y + 4, width, kRowStep - 8,
             colour_class("fill", static_cast<int>(chart.parts.size() > 1 ? i + 1 : 1)),
             row.name + part + ": " + short_number(row.parts[i]) + " " + chart.unit);
    x += width;
  }
  svg.text(left - 8, y + kRowStep / 2 + 4, row.name, "small", Anchor::end);
  const double end = chart.centred ? right + 6 : x + 5;
  svg.text(end, y + kRowStep / 2 + 4, short_number(total), "small muted");
}

double heat_share(double value, double low, double high, bool logarithmic) {
  if (!(high > low)) return 0;
  if (!logarithmic) return (value - low) / (high - low);
  return value <= low ? 0 : std::log(value / low) / std::log(high / low);
}

// Formats with two digits, because cells are narrow.
std::string cell_number(double value) {
  const double size = std::abs(value);
  if (size == 0 || (size >= 0.1 && size < 1000)) return short_number(std::round(value * 100) / 100);
  const double power = std::pow(10.0, std::floor(std::log10(size)) - 1);
  return short_number(std::round(value / power) * power);
}

struct HeatRange {
  double low = 0, high = 0;
};

HeatRange heat_range(const HeatChart& chart) {
  ValueRange range;
  for (const auto& row : chart.cells) {
    for (const auto& cell : row) {
      if (cell) range.add(*cell, chart.logarithmic);
    }
  }
  return {range.low, range.high};
}

void draw_heat_cell(Svg& svg, const HeatChart& chart, const HeatRange& range, double x, double y,
                    std::optional<double> value, const std::string& hint) {
  if (!value) {
    svg.rect(x, y, chart.cell_width - 1, chart.cell_height - 1, "none", hint + ": none");
    return;
  }
  const double share = heat_share(*value, range.low, range.high, chart.logarithmic);
  const int step = std::clamp(static_cast<int>(share * kHeatSteps), 0, kHeatSteps - 1);
  svg.rect(x, y, chart.cell_width - 1, chart.cell_height - 1, colour_class("heat", step),
           hint + ": " + short_number(*value));
  if (!chart.numbers) return;
  svg.text(x + chart.cell_width / 2, y + chart.cell_height / 2 + 4, cell_number(*value),
           step >= 4 ? "small heat-dark" : "small heat-light", Anchor::middle);
}

// Draws the colour scale of a heat map without numbers.
void draw_heat_legend(Svg& svg, const HeatRange& range, double left, double y) {
  constexpr double kBox = 14;
  svg.text(left, y + 9, short_number(range.low), "small muted");
  double x = left + text_width(short_number(range.low), 11) + 6;
  for (int step = 0; step < kHeatSteps; ++step, x += kBox) {
    svg.rect(x, y, kBox - 1, 11, colour_class("heat", step), "");
  }
  svg.text(x + 5, y + 9, short_number(range.high), "small muted");
}

}  // namespace

Svg bar_chart(const BarChart& chart) {
  std::vector<LegendEntry> entries;
  if (chart.parts.size() > 1) {
    for (std::size_t i = 0; i < chart.parts.size(); ++i) {
      entries.push_back({chart.parts[i], static_cast<int>(i + 1)});
    }
  }
  const double legend = legend_height(8, chart.width - 8, entries);
  const double left = name_column(chart.rows), right = chart.width - 56;
  const double bottom = legend + 6 + kRowStep * static_cast<double>(chart.rows.size());
  Svg svg(chart.width, bottom + 38, chart.title);
  draw_legend(svg, 8, 0, chart.width - 8, entries);
  double most = 0;
  for (const BarRow& row : chart.rows) most = std::max(most, sum_of(row.parts));
  const ChartScale scale(0, most > 0 ? most : 1, false);
  double y = legend + 6;
  for (const BarRow& row : chart.rows) {
    draw_bar(svg, chart, row, y, left, right, scale);
    y += kRowStep;
  }
  if (!chart.centred) {
    for (const double tick : scale.ticks(4)) {
      const double at = scale.place(tick, left, right);
      svg.line(at, bottom, at, bottom + 4, "axis");
      svg.text(at, bottom + 16, short_number(tick), "small muted", Anchor::middle);
    }
    svg.line(left, bottom, right, bottom, "axis");
  }
  svg.text((left + right) / 2, bottom + 32, chart.unit, "small", Anchor::middle);
  return svg;
}

Svg interval_chart(const IntervalChart& chart) {
  const double left = name_column(chart.rows), right = chart.width - 16;
  const double bottom = 8 + kRowStep * static_cast<double>(chart.rows.size());
  Svg svg(chart.width, bottom + 40, chart.title);
  ValueRange range;
  for (const IntervalRow& row : chart.rows) {
    for (const double value : {row.low, row.value, row.high}) {
      range.add(value, chart.x.logarithmic);
    }
  }
  if (chart.mark) range.add(*chart.mark, chart.x.logarithmic);
  const ChartScale scale = range.scale(chart.x.logarithmic, 0.05);
  const auto place = [&](double value) { return scale.place(value, left, right); };
  for (const double tick : scale.ticks(static_cast<int>((right - left) / 70))) {
    svg.line(place(tick), 4, place(tick), bottom, "grid");
    svg.text(place(tick), bottom + 16, short_number(tick), "small muted", Anchor::middle);
  }
  svg.line(left, bottom, right, bottom, "axis");
  if (chart.mark) svg.line(place(*chart.mark), 4, place(*chart.mark), bottom, "mark");
  double y = 8 + kRowStep / 2;
  for (const IntervalRow& row : chart.rows) {
    svg.text(left - 8, y + 4, row.name, "small", Anchor::end);
    svg.line(std::max(left, place(row.low)), y, place(row.high), y,
             colour_class("line", row.colour));
    svg.circle(place(row.value), y, 4.5, colour_class("fill", row.colour),
               row.name + ": " + short_number(row.value) + " (" + short_number(row.low) + " to " +
                   short_number(row.high) + ")");
    y += kRowStep;
  }
  svg.text((left + right) / 2, bottom + 34, chart.x.label, "small", Anchor::middle);
  return svg;
}

Svg heat_chart(const HeatChart& chart) {
  double left = 40;
  for (const std::string& name : chart.rows) left = std::max(left, text_width(name, 11) + 12);
  const double width = left + chart.cell_width * static_cast<double>(chart.columns.size()) + 6;
  const double top = 36;
  const double bottom = top + chart.cell_height * static_cast<double>(chart.rows.size());
  const double legend = chart.numbers ? 0 : 22;
  Svg svg(width, bottom + 6 + legend, chart.title);
  const HeatRange range = heat_range(chart);
  if (legend > 0) draw_heat_legend(svg, range, left, bottom + 10);
  svg.text(left, 12, chart.column_label, "small muted");
  const double wanted = chart.cell_width < 22 ? std::ceil(26 / chart.cell_width) : 1;
  for (std::size_t c = 0; c < chart.columns.size(); ++c) {
    if (std::fmod(static_cast<double>(c), wanted) != 0) continue;
    svg.text(left + chart.cell_width * (static_cast<double>(c) + 0.5), top - 6, chart.columns[c],
             "small", Anchor::middle);
  }
  const double rows_a_name = std::ceil(12 / chart.cell_height);
  for (std::size_t r = 0; r < chart.rows.size(); ++r) {
    const double y = top + chart.cell_height * static_cast<double>(r);
    if (std::fmod(static_cast<double>(r), rows_a_name) == 0) {
      svg.text(left - 8, y + chart.cell_height / 2 + 4, chart.rows[r], "small", Anchor::end);
    }
    for (std::size_t c = 0; c < chart.columns.size(); ++c) {
      const auto value = c < chart.cells[r].size() ? chart.cells[r][c] : std::nullopt;
      draw_heat_cell(svg, chart, range, left + chart.cell_width * static_cast<double>(c), y, value,
                     chart.rows[r] + ", " + chart.columns[c]);
    }
  }
  return svg;
}

}  // namespace leq
