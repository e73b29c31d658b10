// The charts of a report; each one converts plain numbers to an SVG drawing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/svg.h"

namespace leq {

struct ChartAxis {
  std::string label;
  bool logarithmic = false;
};

struct ChartPoint {
  double x = 0, y = 0;
  std::optional<double> low = {}, high = {};  // the interval of y
};

// Labelled points; `frontier`: draws a staircase through the points for which no other point is
// smaller in both coordinates.
struct NamedPoint {
  std::string name;
  ChartPoint at;
  int colour = 0;
};
struct ScatterChart {
  std::string title;
  ChartAxis x, y;
  std::vector<NamedPoint> points;
  bool frontier = false;
  double width = 560, height = 380;
};
Svg scatter_chart(const ScatterChart& chart);

struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;
  int colour = 0;
  bool dashed = false;
  bool dots = true;
};
struct LineChart {
  std::string title;
  ChartAxis x, y;
  std::vector<ChartSeries> series;
  double width = 460, height = 300;
};
Svg line_chart(const LineChart& chart);

// Clouds of small points, in panels that share one scale.
struct CloudChart {
  std::string title;
  ChartAxis x, y;
  std::vector<ChartSeries> series;
  double width = 460, height = 340;
};
Svg cloud_chart(const CloudChart& chart);

// One bar per row, stacked from several parts.
struct BarRow {
  std::string name;
  std::vector<double> parts;
};
struct BarChart {
  std::string title;
  std::string unit;
  std::vector<std::string> parts;  // names of the parts
  std::vector<BarRow> rows;
  bool centred = false;  // centred on a middle line (spindle chart)
  double width = 460;
};
Svg bar_chart(const BarChart& chart);

// A value with an interval for each row, and a reference line.
struct IntervalRow {
  std::string name;
  double value = 0, low = 0, high = 0;
  int colour = 0;
};
struct IntervalChart {
  std::string title;
  ChartAxis x;
  std::vector<IntervalRow> rows;
  std::optional<double> mark = {};
  double width = 460;
};
Svg interval_chart(const IntervalChart& chart);

// Cells [rows][columns], darker for larger values; absent cells stay empty.
struct HeatChart {
  std::string title;
  std::vector<std::string> rows, columns;
  std::vector<std::vector<std::optional<double>>> cells;
  bool logarithmic = true;
  bool numbers = true;  // print the values in the cells
  std::string column_label;
  double cell_width = 58, cell_height = 24;
};
Svg heat_chart(const HeatChart& chart);

// Polygons over axes from 0 (centre) to 1 (rim).
struct RadarSeries {
  std::string name;
  std::vector<double> values;
  int colour = 0;
};
struct RadarChart {
  std::string title;
  std::vector<std::string> axes;
  std::vector<RadarSeries> series;
  double width = 500, height = 380;
};
Svg radar_chart(const RadarChart& chart);

}  // namespace leq
