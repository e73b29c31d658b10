#include "quantize/pipeline/rotation_search.h"

#include <algorithm>
#include <memory>

#include "backend/cpu/workers.h"
#include "base/error.h"
#include "model/weights.h"
#include "quantize/methods/second_order.h"
#include "quantize/pipeline/block_run.h"
#include "quantize/rewrites/fold.h"

namespace leq {
namespace {

// Windows that suffice for mean squares; each seed costs a forward pass over all of them.
constexpr std::int64_t kWindows = 8;

class SeedLoss {
 public:
  SeedLoss(const ModelConfig& config, std::span<const TensorInput> tensors,
           const RotationSearch& search)
      : config_(config), tensors_(tensors), search_(search), workers_(search.threads) {}

  double of(std::uint64_t seed) {
    BlockRewrites rewrites = search_.rewrites;
    rewrites.rotation_seed = seed;
    const BlockSource source(config_, tensors_, rewrites);
    HiddenStates hidden(std::min(kWindows, std::ssize(search_.data.windows)),
                        search_.data.length * config_.width, {});
    source.embed(search_.data, hidden, *workers_.backend);
    losses_ = 0;
    linears_ = 0;
    for (std::int64_t layer = 0; layer < config_.layer_count(); ++layer) add(source, layer, hidden);
    require(linears_ > 0, Setting{"rotation_seeds"},
            ": no block linear is rounded, so all seeds are equal");
    return losses_ / static_cast<double>(linears_);
  }

 private:
  void add(const BlockSource& source, std::int64_t layer, HiddenStates& hidden) {
    const BlockTensors block = source.load(layer);
    BlockRun run(source.config(), layer, block, *workers_.backend, search_.data.length);
    const PassContext context = {
        run, hidden, *workers_.backend, workers_.pool, "layers." + std::to_string(layer), [this] {
          require(!search_.stop(), ErrorKind::interrupted, "interrupted");
        }};
    const PassResult result = run_pass(context, {.sites = all_sites(run.sites()),
                                                 .wanted = {.hessian = false, .sample_tokens = 0}});
    for (const TensorSpec& spec : layer_tensors(config_, layer)) {
      if (!is_block_linear(spec.role)) continue;
      const QuantScheme scheme = search_.plan(layer_tensor(layer, spec.name), spec.role).scheme;
      if (!scheme.is_integer()) continue;
      const Matrix& weight = block.at(spec.name);
      const auto rounded = rounded_weight({spec.name, weight.values, weight.rows}, weight.columns,
                                          scheme, &workers_.pool);
      losses_ +=
          diagonal_error({weight.values, rounded, weight.rows, weight.columns, &workers_.pool},
                         result.statistics.at(site_of(run.sites(), spec.name)));
      ++linears_;
    }
  }

  const ModelConfig& config_;
  std::span<const TensorInput> tensors_;
  const RotationSearch& search_;
  Workers workers_;
  double losses_ = 0;
  std::int64_t linears_ = 0;
};

}  // namespace

RotationChoice search_rotation(const ModelConfig& config, std::span<const TensorInput> tensors,
                               const RotationSearch& search) {
  require(search.seeds >= 1, Setting{"rotation_seeds"}, " ", search.seeds, ": expected at least 1");
  SeedLoss loss(config, tensors, search);
  RotationChoice best;
  for (int i = 0; i < search.seeds; ++i) {
    const std::uint64_t seed = search.first_seed + static_cast<std::uint64_t>(i);
    const double value = loss.of(seed);
    best.worst_loss = std::max(best.worst_loss, value);
    if (i > 0 && value >= best.loss) continue;
    best.seed = seed;
    best.loss = value;
  }
  return best;
}

}  // namespace leq
