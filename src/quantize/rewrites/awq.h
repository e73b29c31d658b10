// AWQ (Lin et al. 2024): important input channels are scaled up before rounding, and the largest
// weights of a group are clipped if that reduces the error. Errors are computed with H = X^T X, or
// with its diagonal if H is unknown.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "quantize/methods/second_order.h"
#include "quantize/rewrites/fold.h"

namespace leq {

struct AwqOptions {
  QuantScheme scheme{CodeKind::uint_, 4, Scaling::group, 128};
  std::vector<QuantScheme> of_consumers;  // scheme of each; empty: `scheme` for all
  int steps = 20;                         // number of exponents above 0, up to 1
  // Rows of each consumer that the search uses, evenly spaced. Its result is compared with no
  // scaling over all rows, as they are stored in a file (superblock scales are fitted), because any
  // scaling of columns harms a weight whose values are already exact in such a format.
  std::int64_t search_rows = 512;
  bool clip = true;
};

struct AwqScales {
  std::vector<float> scales;  // [S]
  double exponent = 0;        // r; 0 if no scaling was best
  bool by_weights = false;    // true: s_j = x_j^r / w_j^(1-r); false: s_j = x_j^r
  double error = 0;           // relative squared error of the outputs, weights rounded by plain
                              // ranges, or by fitted superblock scales
  double plain_error = 0;     // without scales
};
// With r = i / steps, candidates are s_j = x_j^r and s_j = x_j^r / w_j^(1-r), where x_j = mean
// |x_j| and w_j = mean over rows of |W_nj| / max of its group, each divided by sqrt(max s * min s).
// No scaling is a candidate too, so that error <= plain_error. Throws Error without statistics.
AwqScales search_awq_scales(const Site& site, const AwqOptions& options);

// Clips the groups of a weight [N][K] to the share (1, 0.95 ... 0.55) of their largest |w| with the
// least error of the rounded weight: first each group with its block of H, then a row keeps its
// clipping if that reduces its error with all of H. `scale` [K]: the factors on the weight's
// columns, by which its inputs are divided. Ranks divide the work as in rounded_weight.
std::vector<float> clip_weight(const SiteWeight& weight, std::span<const float> scale,
                               const QuantScheme& scheme, const OutputWeights& outputs,
                               Communicator& ranks = one_rank());

struct AwqResult {
  AwqScales found;
  std::vector<std::vector<float>> weights;  // [consumers][N][K]: scaled, then clipped
};
// Scales the site, then clips every consumer except q and k: their errors combine in a product, so
// that the error of each one alone does not describe the effect.
AwqResult apply_awq(const Site& site, const AwqOptions& options);

}  // namespace leq
