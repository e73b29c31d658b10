// The f32 tensors of one block, or those outside the blocks, which folds and methods work
// on.
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
#include "quantize/calibration/statistics.h"
#include "quantize/methods/tensor_plan.h"
#include "ranks/communicator.h"
#include "tensor/quant_scheme.h"

namespace leq {

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

// Folds the bias of v into o: o.bias += W_o repeat_kv(v.bias), v.bias = 0. This is exact,
// because attention weights add up to 1. Without rotary positions the bias of k, which
// shifts all scores of a query alike, becomes 0 too. Afterwards the KV cache contains no
// biases. No effect on a block without q, k and v biases. A block without o.bias gets one,
// as in the configuration of with_attention_biases_folded. Layers with an output gate are
// not changed.
void fold_attention_biases(BlockTensors& block, const ModelConfig& config, std::int64_t layer = 0);
ModelConfig with_attention_biases_folded(ModelConfig config);

// The same model with a bias on every linear of its layers; added biases are zero.
ModelConfig with_linear_biases(ModelConfig config);

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

// The folds that belong to a method or are selected on their own: SmoothQuant, AWQ, and an
// equalizer that needs no data.

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
// s = 1 / max |W| of each channel; ignores the inputs. For comparison.
FoldMethod equalizer_fold();
// AWQ: scales found by a search over exponents, then clipped groups.
FoldMethod awq_fold();
// AWQ's scales without clipping, for methods that choose ranges and codes. Errors are weighted by
// the mean squares of the inputs.
FoldMethod awq_scales_fold();

}  // namespace leq
