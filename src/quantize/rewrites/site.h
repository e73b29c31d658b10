// One smoothing site with the weights that read its input, on which the scale searches of
// SmoothQuant and AWQ work.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "quantize/calibration/statistics.h"
#include "quantize/rewrites/block_tensors.h"
#include "quantize/rewrites/fold.h"
#include "tensor/quant_scheme.h"

namespace leq {

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

}  // namespace leq
