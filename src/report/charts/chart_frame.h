// The common parts of charts with two axes: plot area, grid, labels and legend.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/charts/charts.h"
#include "report/charts/scale.h"

namespace leq {

struct PlotArea {
  double left = 0, top = 0, right = 0, bottom = 0;
};

// The lowest and highest value to be shown, from which a scale is made.
struct ValueRange {
  double low = 0, high = 0;
  bool any = false;
  void add(double value, bool logarithmic);
  // A scale of the range, extended on both sides by the fraction `margin`.
  ChartScale scale(bool logarithmic, double margin) const;
};

// Draws grid, ticks and axis names. `x_ticks`: if empty, round numbers are chosen.
void draw_frame(Svg& svg, const PlotArea& area, const ChartScale& x, const ChartScale& y,
                const std::string& x_label, const std::string& y_label,
                std::vector<double> x_ticks = {});

// Entries in rows starting at (left, top), not extending beyond `right`; returns the height used.
struct LegendEntry {
  std::string name;
  int colour = 0;
  bool line = false, dashed = false;
};
double draw_legend(Svg& svg, double left, double top, double right,
                   const std::vector<LegendEntry>& entries);
double legend_height(double left, double right, const std::vector<LegendEntry>& entries);

// The approximate width of a text in the charts' font.
double text_width(std::string_view text, double size = 13);

}  // namespace leq
