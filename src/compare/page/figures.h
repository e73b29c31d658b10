// The figures of a report, made from results.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "report/svg.h"

namespace leq {

struct Figure {
  std::string title;
  Svg drawing;
  std::string caption;
};

// Size against KL divergence: the first figure of the page, and also the image for a README.
Figure pareto_figure(const Json& results, double width, double height);

std::vector<Figure> overview_figures(const Json& results);  // Pareto, radar
std::vector<Figure> spindle_figures(const Json& results);   // like the paper's Figure 6
std::vector<Figure> layer_figures(const Json& results);
// Distributions of activations, weights and hidden states.
std::vector<Figure> distribution_figures(const Json& results);
std::vector<Figure> hidden_figures(const Json& results);
std::vector<Figure> curve_figures(const Json& results);
std::vector<Figure> latency_figures(const Json& results);
std::vector<Figure> choice_figures(const Json& results);

// The colour of a candidate, the same in all figures.
int colour_of(const Json& results, const std::string& spec);
// At most `most` representative candidates, for figures in which all would be too many.
std::vector<std::string> featured_specs(const Json& results, std::size_t most);

}  // namespace leq
