// Folds: rewrites of a block's f32 tensors before its weights are quantized: SmoothQuant
// and AWQ; and the effect of rounding the inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "model/model_config.h"
#include "quantize/calibration/calibration.h"
#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"
#include "ranks/communicator.h"
#include "tensor/quant_scheme.h"
#include "tensor/weight_layout.h"

namespace leq {

// The f32 tensors of one block, or those outside the blocks.

struct Matrix {
  std::int64_t rows = 0;      // N; 1 for a vector
  std::int64_t columns = 0;   // K
  std::vector<float> values;  // [N][K]
};

// Tensors by their names within the block: "attention_norm", "q", "q.bias", "down.inv_smooth".
struct BlockTensors {
  std::map<std::string, Matrix, std::less<>> parts;

  bool has(std::string_view part) const { return parts.contains(part); }
  Matrix& at(std::string_view part) {
    const auto found = parts.find(part);
    ensure(found != parts.end(), "block: no tensor ", part);
    return found->second;
  }
  const Matrix& at(std::string_view part) const {
    return const_cast<BlockTensors*>(this)->at(part);
  }
};

// Rewrites of a block that preserve its function: inputs of linears are divided by s, and the
// linears' columns are multiplied by s. The producer of the inputs absorbs the division if it can;
// otherwise the linear gets inv_smooth, a factor on its inputs at run time.
enum class Producer : std::uint8_t {
  norm,      // the gain (and beta) of a norm absorbs it
  rows,      // a linear's rows and bias absorb it: v before o, up before down
  run_time,  // no operation can absorb it (GELU before down): inv_smooth
};

// Linears that read one input, and the operation that produces this input.
struct SmoothingSite {
  std::string name;  // name of its LinearSite: "qkv", "o", "gate_up", "down"
  Producer producer = Producer::norm;
  std::string producer_part;           // "attention_norm", "v", "up"; empty for run_time
  std::vector<std::string> consumers;  // {"q", "k", "v"}: linears that determine the scales
  std::int64_t columns = 0;            // K of the consumers
  // [K] index of the scale of each input channel. It is the identity, except after grouped-query
  // attention, where query heads of one KV head share the scales of its v rows.
  std::vector<std::int32_t> scale_of;
  std::int64_t scales = 0;  // largest index + 1
  // Linears of the same input that are never quantized; their columns are scaled too.
  std::vector<std::string> exact = {};
};

// The smoothing sites of a layer, in the order in which their inputs are computed.
std::vector<SmoothingSite> smoothing_sites(const ModelConfig& config, std::int64_t layer = 0);

// Divides the input of the site's consumers by scale[scale_of[k]] and multiplies their columns by
// it, which preserves the block's function in exact arithmetic. `scale` [site.scales] must be
// finite and > 0. Products are computed in double and rounded once.
void fold_scales(BlockTensors& block, const SmoothingSite& site, std::span<const float> scale);

// One smoothing site with the weights that read its input, on which the scale searches of
// SmoothQuant and AWQ work.

// A weight [N][K] that reads the site's input.
struct SiteWeight {
  std::string_view name;  // "q"
  std::span<const float> values;
  std::int64_t rows = 0;  // N
};

struct Site {
  std::string_view name;  // for error messages
  std::vector<SiteWeight> consumers;
  std::int64_t columns = 0;                     // K of all consumers
  std::span<const std::int32_t> scale_of;       // [K] index of a channel's scale (SmoothingSite)
  std::int64_t scales = 0;                      // S, number of scales
  const InputStatistics* statistics = nullptr;  // statistics of the shared input
  ThreadPool* pool = nullptr;                   // results do not depend on the number of threads
  Communicator* ranks = &one_rank();            // ranks that may divide the work on this site
};

// Keeps pointers to `block` and the statistics. Throws Error if shapes do not match.
Site make_site(const SmoothingSite& site, const BlockTensors& block,
               const InputStatistics& statistics, ThreadPool* pool,
               Communicator& ranks = one_rank());

// Indices of the consumers that a search measures: all, or an even selection of many (experts).
std::vector<std::size_t> searched_consumers(const Site& site);

// Expands scale [S] to one number for each input channel: [K].
std::vector<float> scales_of_columns(const Site& site, std::span<const float> scale);

// W diag(scale) in f32, [N][K].
std::vector<float> scaled_columns(std::span<const float> weight, std::span<const float> scale);

// Values [N][K] of a weight after rounding to an integer scheme with plain ranges (methods absmax
// and zeropoint). Each of several ranks has some of the rows, possibly none; if rows share a scale,
// one rank must have all rows.
std::vector<float> rounded_weight(const SiteWeight& weight, std::int64_t columns,
                                  const QuantScheme& scheme, ThreadPool* pool,
                                  Communicator& ranks = one_rank());

// Outputs W X^T [N][T] of w [N][K] for x [T][K], in f32. Ranks divide the rows, and all ranks
// receive all outputs.
std::vector<float> outputs(std::span<const float> x, std::span<const float> w, std::int64_t columns,
                           ThreadPool* pool, Communicator& ranks = one_rank());

// The folds that belong to a method or are selected on their own: SmoothQuant and AWQ.

// Linears that read one input and the statistics of that input, from which a fold is chosen.
struct FoldInput {
  const SmoothingSite& site;
  const BlockTensors& block;
  const InputStatistics& statistics;
  std::function<TensorPlan(const std::string& part)> plan;  // plan of a consumer: "q"
  ThreadPool& pool;
  Communicator& ranks = one_rank();
};
struct FoldChoice {
  std::vector<float> scales;  // [site.scales] divisors of the input; empty = no fold
  // The consumers' new weights, if the fold does more than multiply their columns.
  std::vector<std::vector<float>> weights = {};
};
struct FoldMethod {
  std::string name;  // for users: "smoothquant, alpha searched"
  bool wants_hessian = false;
  std::function<FoldChoice(const FoldInput&)> choose;
};

// SmoothQuant with one alpha for all sites or, without alpha, with the best of each site (or none).
FoldMethod smoothing_fold(std::optional<double> alpha);
// AWQ: scales found by a search over exponents, then clipped groups.
FoldMethod awq_fold();
// AWQ's scales without clipping, for methods that choose ranges and codes. Errors are weighted by
// the mean squares of the inputs.
FoldMethod awq_scales_fold();

// AWQ (Lin et al. 2024): important input channels are scaled up before rounding, and the largest
// weights of a group are clipped if that reduces the error. Errors are computed with H = X^T X, or
// with its diagonal if H is unknown.

struct AwqOptions {
  QuantScheme scheme{CodeKind::uint_, 4, Scaling::group, 128};
  std::vector<QuantScheme> of_consumers;  // scheme of each; empty: `scheme` for all
  int steps = 20;                         // number of exponents above 0, up to 1
  // Rows of each consumer that the search uses, evenly spaced. Its result is compared with no
  // scaling over all rows, as they are stored in a file (superblock scales are fitted), because any
  // scaling of columns harms a weight whose values are already exact in such a format.
  std::int64_t search_rows = 512;
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

// SmoothQuant (Xiao et al. 2023): moves the magnitude of an input channel from the activations,
// which have few scales, into the weights. Computes the scales of one site and searches for the
// migration strength alpha; quantize/rewrites/fold.h folds the scales.

// The paper's presets: the granularity of the scales of weights and inputs.
struct SmoothingPreset {
  std::string_view name;  // "o1"
  std::string_view summary;
  QuantScheme weight;
  ActKind act = ActKind::row;
};
std::span<const SmoothingPreset> smoothing_presets();

// s_j = clamp(a_j^alpha / w_j^(1 - alpha), 1e-5, 1e5): [S]. a_j = max |x_j| and w_j = max |W_nj|
// over all consumers and channels that share the scale, both at least 1e-5; s_j = 1 if a_j is 0.
std::vector<float> smoothing_scales(const Site& site, double alpha);

// Rows of a weight that a search compares, evenly spaced. They are enough to find the best alpha,
// at a sixth of the work for a 7B model. A tensor with one scale is compared with all rows.
inline constexpr std::int64_t kSearchRows = 1024;

struct SmoothingOptions {
  QuantScheme weight{CodeKind::int_, 8, Scaling::row, 0};
  ActKind act = ActKind::row;
  std::vector<double> alphas = {0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9};  // must be ascending
};

struct SmoothingChoice {
  std::optional<double> alpha;  // nullopt: no scaling had the least error
  std::vector<float> scales;    // [S]; all 1 without scaling
  // ||Y - Yq||^2 / ||Y||^2 over the sampled tokens and the compared rows of all consumers, weighted
  // by N / R. Y = X W^T, and Yq is the same with X / s and W diag(s) rounded.
  double error = 0;
  double plain_error = 0;  // error without scales
};
// The alpha of least error (the smallest one on ties), or no scaling if that is better. Throws
// Error without sampled tokens.
SmoothingChoice search_smoothing(const Site& site, const SmoothingOptions& options);

// The effect of rounding a linear's inputs to int8: the fixed scale of `act tensor`, the rounding
// of each mode, and whether a fixed scale is accurate enough.

// The fixed scale for all values, c / 127. c has the least squared error over the histogram among
// the absmax and the 99.99 and 99.9 percent quantiles of |x|.
float static_act_scale(const InputStatistics& statistics);
// Like static_act_scale above, for a list of values instead of a histogram.
float static_act_scale(std::span<const float> values);

// Rounds the rows of x [T][K] to int8 in place, as `act` does at run time. none: unchanged; row and
// g128: by the absmax of each; tensor: by static_act_scale of all; online: by the absmax of all.
void round_activations(std::span<float> x, std::int64_t columns, ActKind act);

// Output error ||Y - Yq||^2 of a site: Y = X W^T; Yq has weights rounded to their scheme and inputs
// rounded to int8, either with one fixed scale or with a scale for each token. X are the sampled
// tokens, weighted by the number of tokens between two samples, and the token of the largest input.
struct ActErrors {
  double fixed = 0;
  double by_token = 0;
};
ActErrors act_errors(const Site& site, const QuantScheme& weight, float scale);

}  // namespace leq
