// Scatter, line and cloud charts.
#include <algorithm>
#include <cmath>
#include <set>

#include "report/charts/chart_frame.h"

namespace leq {
namespace {

constexpr double kLeft = 62, kRight = 14, kBelow = 42;

std::string hint_of(const std::string& name, const ChartPoint& at) {
  std::string text = name + ": " + short_number(at.x) + ", " + short_number(at.y);
  if (at.low && at.high)
    text += " (" + short_number(*at.low) + " to " + short_number(*at.high) + ")";
  return text;
}

void add_to_range(const ChartPoint& at, bool log_x, bool log_y, ValueRange& x, ValueRange& y) {
  x.add(at.x, log_x);
  y.add(at.y, log_y);
  if (at.low) y.add(*at.low, log_y);
  if (at.high) y.add(*at.high, log_y);
}

void draw_interval(Svg& svg, const ChartPoint& at, const PlotArea& area, const ChartScale& x,
                   const ChartScale& y, int colour) {
  if (!at.low || !at.high) return;
  const double px = x.place(at.x, area.left, area.right);
  const auto py = [&](double v) {
    return std::clamp(y.place(v, area.bottom, area.top), area.top, area.bottom);
  };
  const std::string style = colour_class("line", colour) + " thin";
  svg.line(px, py(*at.low), px, py(*at.high), style);
  for (const double end : {*at.low, *at.high}) svg.line(px - 3, py(end), px + 3, py(end), style);
}

// Connects the points for which no other point is both lower and further left.
void draw_frontier(Svg& svg, const ScatterChart& chart, const PlotArea& area, const ChartScale& x,
                   const ChartScale& y) {
  std::vector<ChartPoint> points;
  for (const NamedPoint& point : chart.points) points.push_back(point.at);
  std::ranges::sort(
      points, [](const auto& a, const auto& b) { return a.x < b.x || (a.x == b.x && a.y < b.y); });
  std::string d;
  double best = 0;
  for (const ChartPoint& at : points) {
    if (!d.empty() && at.y >= best) continue;
    const std::string px = coordinate(x.place(at.x, area.left, area.right));
    const std::string py = coordinate(y.place(at.y, area.bottom, area.top));
    d += d.empty() ? "M" + px + " " + py : "H" + px + "V" + py;
    best = at.y;
  }
  if (!d.empty()) svg.path(d, "mark");
}

// Positions for labels that overlap neither each other nor points: tries several per point.
class NamePlaces {
 public:
  NamePlaces(const PlotArea& area, std::vector<std::pair<double, double>> points)
      : area_(area), points_(std::move(points)) {}

  struct Place {
    double x = 0, y = 0;
    Anchor anchor = Anchor::start;
  };
  Place find(double px, double py, double width) {
    Place best;
    double least = 1e9;
    for (const double dy : {4.0, -9.0, 17.0, -22.0, 30.0, -35.0, 43.0}) {
      for (const Anchor anchor : {Anchor::start, Anchor::end, Anchor::middle}) {
        if (anchor == Anchor::middle && dy == 4.0) continue;
        const double dx = anchor == Anchor::start ? 9 : anchor == Anchor::end ? -9 : 0;
        const Place place = {px + dx, py + dy, anchor};
        const double cost = overlap(box_of(place, width)) + std::abs(dy - 4) * 0.05;
        if (cost < least) {
          least = cost;
          best = place;
        }
      }
    }
    boxes_.push_back(box_of(best, width));
    return best;
  }

 private:
  static PlotArea box_of(const Place& place, double width) {
    const double left = place.anchor == Anchor::start ? place.x
                        : place.anchor == Anchor::end ? place.x - width
                                                      : place.x - width / 2;
    return {left, place.y - 10, left + width, place.y + 3};
  }
  static double common(const PlotArea& a, const PlotArea& b) {
    const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
    const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
    return width > 0 && height > 0 ? width * height : 0;
  }
  double overlap(const PlotArea& box) const {
    double sum = 0;
    for (const PlotArea& other : boxes_) sum += common(box, other);
    for (const auto& [x, y] : points_) sum += common(box, {x - 5, y - 5, x + 5, y + 5});
    const double outside =
        std::max(0.0, area_.left - box.left) + std::max(0.0, box.right - area_.right) +
        std::max(0.0, area_.top - box.top) + std::max(0.0, box.bottom - area_.bottom);
    return sum + 1000 * outside;
  }

  PlotArea area_;
  std::vector<std::pair<double, double>> points_;
  std::vector<PlotArea> boxes_;
};

std::vector<LegendEntry> legend_of(const std::vector<ChartSeries>& series, bool lines) {
  std::vector<LegendEntry> entries;
  for (const ChartSeries& one : series) {
    entries.push_back({one.name, one.colour, lines, one.dashed});
  }
  return entries;
}

std::string path_through(const std::vector<ChartPoint>& points, const PlotArea& area,
                         const ChartScale& x, const ChartScale& y) {
  std::string d;
  for (const ChartPoint& at : points) {
    const double py = std::clamp(y.place(at.y, area.bottom, area.top), area.top, area.bottom);
    d += (d.empty() ? "M" : "L") + coordinate(x.place(at.x, area.left, area.right)) + " " +
         coordinate(py);
  }
  return d;
}

// If a logarithmic axis has only a few values (1, 4, 16 ...), these are its ticks; otherwise none.
std::vector<double> own_ticks(const LineChart& chart) {
  constexpr std::size_t kMost = 9;
  std::set<double> places;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& at : series.points) places.insert(at.x);
  }
  if (!chart.x.logarithmic || places.size() > kMost) return {};
  return {places.begin(), places.end()};
}

}  // namespace

Svg scatter_chart(const ScatterChart& chart) {
  Svg svg(chart.width, chart.height, chart.title);
  ValueRange xs, ys;
  for (const NamedPoint& point : chart.points) {
    add_to_range(point.at, chart.x.logarithmic, chart.y.logarithmic, xs, ys);
  }
  const ChartScale x = xs.scale(chart.x.logarithmic, 0.08);
  const ChartScale y = ys.scale(chart.y.logarithmic, 0.08);
  const PlotArea area = {kLeft, 10, chart.width - kRight, chart.height - kBelow};
  draw_frame(svg, area, x, y, chart.x.label, chart.y.label);
  if (chart.frontier) draw_frontier(svg, chart, area, x, y);
  std::vector<std::pair<double, double>> places;
  for (const NamedPoint& point : chart.points) {
    places.emplace_back(x.place(point.at.x, area.left, area.right),
                        y.place(point.at.y, area.bottom, area.top));
  }
  NamePlaces names(area, places);
  for (std::size_t i = 0; i < chart.points.size(); ++i) {
    const NamedPoint& point = chart.points[i];
    draw_interval(svg, point.at, area, x, y, point.colour);
    svg.circle(places[i].first, places[i].second, 5, colour_class("fill", point.colour),
               hint_of(point.name, point.at));
  }
  for (std::size_t i = 0; i < chart.points.size(); ++i) {
    const auto at =
        names.find(places[i].first, places[i].second, text_width(chart.points[i].name, 11));
    svg.text(at.x, at.y, chart.points[i].name, "small halo", at.anchor);
  }
  return svg;
}

Svg line_chart(const LineChart& chart) {
  const std::vector<LegendEntry> entries = legend_of(chart.series, true);
  const double legend = legend_height(kLeft, chart.width - kRight, entries);
  Svg svg(chart.width, chart.height + legend, chart.title);
  ValueRange xs, ys;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& at : series.points) {
      add_to_range(at, chart.x.logarithmic, chart.y.logarithmic, xs, ys);
    }
  }
  const ChartScale x = xs.scale(chart.x.logarithmic, 0.02);
  const ChartScale y = ys.scale(chart.y.logarithmic, 0.06);
  draw_legend(svg, kLeft, 0, chart.width - kRight, entries);
  const PlotArea area = {kLeft, legend + 8, chart.width - kRight, legend + chart.height - kBelow};
  draw_frame(svg, area, x, y, chart.x.label, chart.y.label, own_ticks(chart));
  for (const ChartSeries& series : chart.series) {
    std::string style = colour_class("line", series.colour);
    if (series.dashed) style += " dashed";
    const std::string d = path_through(series.points, area, x, y);
    if (!d.empty()) svg.path(d, style);
    for (const ChartPoint& at : series.points) {
      draw_interval(svg, at, area, x, y, series.colour);
      if (!series.dots) continue;
      const double py = std::clamp(y.place(at.y, area.bottom, area.top), area.top, area.bottom);
      svg.circle(x.place(at.x, area.left, area.right), py, 3.2, colour_class("fill", series.colour),
                 hint_of(series.name, at));
    }
  }
  return svg;
}

Svg cloud_chart(const CloudChart& chart) {
  const std::vector<LegendEntry> entries = legend_of(chart.series, false);
  const double legend = legend_height(kLeft, chart.width - kRight, entries);
  Svg svg(chart.width, chart.height + legend, chart.title);
  ValueRange xs, ys;
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& at : series.points) add_to_range(at, false, false, xs, ys);
  }
  const ChartScale x = xs.scale(false, 0.05), y = ys.scale(false, 0.05);
  draw_legend(svg, kLeft, 0, chart.width - kRight, entries);
  const PlotArea area = {kLeft, legend + 8, chart.width - kRight, legend + chart.height - kBelow};
  draw_frame(svg, area, x, y, chart.x.label, chart.y.label);
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& at : series.points) {
      svg.circle(x.place(at.x, area.left, area.right), y.place(at.y, area.bottom, area.top), 2,
                 colour_class("fill", series.colour));
    }
  }
  return svg;
}

}  // namespace leq
