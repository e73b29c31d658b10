#include "report/charts/chart_frame.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace leq {
namespace {

constexpr double kRowHeight = 18;
constexpr double kSwatch = 16;

// Calls place(entry, x, y) with the position of each legend entry; returns the total height.
template <class Place>
double lay_out(double left, double right, const std::vector<LegendEntry>& entries,
               const Place& place) {
  double x = left, y = 0;
  for (const LegendEntry& entry : entries) {
    const double width = kSwatch + 6 + text_width(entry.name, 11) + 14;
    if (x > left && x + width > right) {
      x = left;
      y += kRowHeight;
    }
    place(entry, x, y);
    x += width;
  }
  return entries.empty() ? 0 : y + kRowHeight;
}

}  // namespace

double text_width(std::string_view text, double size) {
  std::size_t characters = 0;
  while (!text.empty()) {
    text.remove_prefix(std::max<std::size_t>(1, utf8_length(text)));
    ++characters;
  }
  return static_cast<double>(characters) * size * 0.56;
}

void ValueRange::add(double value, bool logarithmic) {
  if (!std::isfinite(value) || (logarithmic && value <= 0)) return;
  low = any ? std::min(low, value) : value;
  high = any ? std::max(high, value) : value;
  any = true;
}

ChartScale ValueRange::scale(bool logarithmic, double margin) const {
  if (!any) return {logarithmic ? 0.1 : 0, 1, logarithmic};
  if (logarithmic) {
    const double factor = std::max(std::pow(high / low, margin), 1.05);
    return {low / factor, high * factor, true};
  }
  const double margin_space = (high - low) * margin;
  const bool from_zero = low >= 0 && low - margin_space < 0;
  return {from_zero ? 0 : low - margin_space, high + margin_space, false};
}

void draw_frame(Svg& svg, const PlotArea& area, const ChartScale& x, const ChartScale& y,
                const std::string& x_label, const std::string& y_label,
                std::vector<double> x_ticks) {
  if (x_ticks.empty()) x_ticks = x.ticks(static_cast<int>((area.right - area.left) / 70));
  for (const double tick : x_ticks) {
    const double at = x.place(tick, area.left, area.right);
    svg.line(at, area.top, at, area.bottom, "grid");
    svg.text(at, area.bottom + 16, short_number(tick), "small muted", Anchor::middle);
  }
  for (const double tick : y.ticks(static_cast<int>((area.bottom - area.top) / 45))) {
    const double at = y.place(tick, area.bottom, area.top);
    svg.line(area.left, at, area.right, at, "grid");
    svg.text(area.left - 6, at + 4, short_number(tick), "small muted", Anchor::end);
  }
  svg.line(area.left, area.bottom, area.right, area.bottom, "axis");
  svg.text((area.left + area.right) / 2, area.bottom + 34, x_label, "small", Anchor::middle);
  svg.text(13, (area.top + area.bottom) / 2, y_label, "small", Anchor::middle, -90);
}

double legend_height(double left, double right, const std::vector<LegendEntry>& entries) {
  return lay_out(left, right, entries, [](const auto&, double, double) {});
}

double draw_legend(Svg& svg, double left, double top, double right,
                   const std::vector<LegendEntry>& entries) {
  return lay_out(left, right, entries, [&](const LegendEntry& entry, double x, double y) {
    const double middle = top + y + 9;
    if (entry.line) {
      svg.line(x, middle, x + kSwatch, middle,
               colour_class("line", entry.colour) + (entry.dashed ? " dashed" : ""));
    } else {
      svg.rect(x + 2, middle - 6, 12, 12, colour_class("fill", entry.colour));
    }
    svg.text(x + kSwatch + 6, middle + 4, entry.name, "small");
  });
}

}  // namespace leq
