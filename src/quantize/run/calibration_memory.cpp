#include "quantize/run/calibration_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "model/linear_sites.h"
#include "quantize/calibration/statistics.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/run/block_run.h"

namespace leq {
namespace {

// Bytes per element of X^T X: for methods that solve with it (the factor's triangle in double, and
// derived data), and for computing losses. The constants after these are bytes per weight of the
// current linear: f32 copies, codes, planes, and buffers for the losses.
constexpr std::uint64_t kBytesPerSolved = 4 + 8;
constexpr std::uint64_t kBytesPerWeighed = sizeof(float);
constexpr std::uint64_t kBytesPerWeight = 4 * sizeof(float);
// Bytes of tables, stacks, file buffers, and the program itself.
constexpr std::uint64_t kFixedBytes = 40 << 20;

std::uint64_t statistics_bytes(std::int64_t columns, std::int64_t samples, bool hessian) {
  const auto k = static_cast<std::uint64_t>(columns);
  return k * (2 * sizeof(float) + 3 * sizeof(double)) + sizeof(InputStatistics) +
         k * static_cast<std::uint64_t>(samples) * sizeof(float) +
         (hessian ? k * k * sizeof(double) : 0);
}

// The first layer of each kind. Layers that differ only in their window need the same memory.
std::vector<std::int64_t> layers_of_each_kind(const ModelConfig& config) {
  std::vector<LayerConfig> kinds;
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    LayerConfig kind = config.layer(layer);
    if (AttentionConfig* attention = kind.attention()) attention->window = 0;
    if (std::ranges::find(kinds, kind) != kinds.end()) continue;
    kinds.push_back(kind);
    layers.push_back(layer);
  }
  return layers;
}

CalibrationMemory plan_layer(const ModelConfig& config, std::int64_t layer,
                             const CalibrationShape& shape, const Layout& layout) {
  std::uint64_t numbers = 0, largest = 0;  // numbers in the layer's tensors, in the largest linear
  for (const TensorSpec& spec : layer_tensors(config, layer)) {
    std::uint64_t of_tensor = 1;
    for (const std::int64_t size : spec.shape) of_tensor *= static_cast<std::uint64_t>(size);
    numbers += of_tensor;
    if (is_block_linear(spec.role)) largest = std::max(largest, of_tensor);
  }
  std::int64_t widest = 0;
  std::uint64_t all = 0, one = 0;  // total of all sites, and the largest stage
  const std::vector<LinearSite> sites = linear_sites(config, layer);
  for (const std::vector<std::size_t>& stage : stages_of(sites)) {
    std::uint64_t of_stage = 0;
    for (const std::size_t at : stage) {
      const LinearSite& site = sites[at];
      widest = std::max(widest, site.inputs);
      all += statistics_bytes(site.inputs, shape.sample_tokens, shape.hessian_together);
      of_stage += statistics_bytes(site.inputs, shape.sample_tokens, shape.hessian_of_one);
    }
    one = std::max(one, of_stage);
  }
  CalibrationMemory memory;
  memory.block = numbers * sizeof(float);
  memory.statistics = shape.together ? std::max(all, one) : one;
  const auto k = static_cast<std::uint64_t>(widest);
  const std::uint64_t of_hessian = shape.hessian_of_one     ? kBytesPerSolved
                                   : shape.hessian_together ? kBytesPerWeighed
                                                            : 0;
  memory.method = largest * kBytesPerWeight + kFixedBytes + k * k * of_hessian;
  if (!shape.hidden) return memory;
  const auto window = static_cast<std::uint64_t>(shape.length * config.width) * sizeof(float);
  const auto input = static_cast<std::uint64_t>(shape.length * widest) * sizeof(float);
  // X^T X is computed from a packed copy of the input, which needs memory too.
  const bool hessian = shape.hessian_of_one || shape.hessian_together;
  memory.forward =
      BlockRun::bytes(config, layer, layout, shape.length) + window + (hessian ? 2 * input : input);
  memory.hidden = window * static_cast<std::uint64_t>(shape.windows);
  return memory;
}

}  // namespace

CalibrationMemory plan_calibration(const ModelConfig& config, const CalibrationShape& shape,
                                   const Layout& layout, std::uint64_t limit) {
  CalibrationMemory memory;
  for (const std::int64_t layer : layers_of_each_kind(config)) {
    const CalibrationMemory one = plan_layer(config, layer, shape, layout);
    memory.block = std::max(memory.block, one.block);
    memory.forward = std::max(memory.forward, one.forward);
    memory.statistics = std::max(memory.statistics, one.statistics);
    memory.method = std::max(memory.method, one.method);
    memory.hidden = std::max(memory.hidden, one.hidden);
  }
  if (limit > 0 && memory.total() > limit) std::swap(memory.hidden, memory.hidden_on_disk);
  require(limit == 0 || memory.total() <= limit, ErrorKind::no_memory, Setting{"max_ram"}, " ",
          human_bytes(limit), ": calibration needs ", describe(memory),
          "; raise it, take a smaller ", Setting{"length"}, ", or another method");
  return memory;
}

std::string describe(const CalibrationMemory& memory) {
  std::string text = human_bytes(memory.total()) + " (block " + human_bytes(memory.block) +
                     ", forward " + human_bytes(memory.forward) + ", statistics " +
                     human_bytes(memory.statistics) + ", method " + human_bytes(memory.method);
  if (memory.hidden > 0) text += ", hidden states " + human_bytes(memory.hidden);
  text += ")";
  if (memory.hidden_on_disk > 0) {
    text += " and hidden states of " + human_bytes(memory.hidden_on_disk) + " on disk";
  }
  return text;
}

}  // namespace leq
