// AWQ (Lin et al. 2024): input channels that matter are scaled up before rounding, and the largest
// weights of a group are clipped where that helps the rest. Errors are measured through
// H = X^T X, or its diagonal where only that is known.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quantize/methods/error.h"
#include "quantize/rewrites/site.h"

namespace leq {

struct AwqOptions {
  QuantScheme scheme{CodeKind::uint_, 4, Scaling::group, 128};
  std::vector<QuantScheme> of_consumers;  // where they differ; empty: `scheme` for all
  int steps = 20;                         // of the exponent, 0 to 1
  // Rows of each consumer that the search looks at, spread evenly; what it finds is then compared
  // with no scaling over all rows, both as a file holds them: scales of scales fitted. A weight
  // that lies on such a grid already loses by any scaling of its columns.
  std::int64_t search_rows = 512;
  bool clip = true;
};

struct AwqScales {
  std::vector<float> scales;  // [S]
  double exponent = 0;        // r; 0 where no scaling was best
  bool by_weights = false;    // the form that also divides by the weights' own size
  double error = 0;           // relative squared error of the outputs, weights rounded by plain
                              // ranges, or by fitted scales of scales
  double plain_error = 0;     // without scales
};
// Over r = i / steps: s_j = x_j^r with x_j = mean |x_j|, and s_j = x_j^r / w_j^(1-r) with w_j the
// mean over rows of |W_nj| / max of its group; each divided by sqrt(max s * min s). No scaling is
// among them, so error <= plain_error. Throws Error without statistics.
AwqScales search_awq_scales(const Site& site, const AwqOptions& options);

// A weight [N][K] whose groups are clipped to the share (1, 0.95 ... 0.55) of their largest |w|
// that makes the rounded weight err least: first by group, with the group's block of H, then a
// row keeps what was found if all of H agrees. `scale` [K]: what the weight's columns were
// multiplied by, and so its inputs are divided by. Ranks as in rounded_weight.
std::vector<float> clip_weight(const SiteWeight& weight, std::span<const float> scale,
                               const QuantScheme& scheme, const OutputWeights& outputs,
                               Communicator& ranks = one_rank());

struct AwqResult {
  AwqScales found;
  std::vector<std::vector<float>> weights;  // [consumers][N][K]: scaled, then clipped
};
// Scales, then clipping of every consumer but q and k, whose errors meet in a product that the
// errors of each alone do not show.
AwqResult apply_awq(const Site& site, const AwqOptions& options);

}  // namespace leq
