#include "quantize/pipeline/calibration_memory.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "model/tensor_list.h"
#include "quantize/calibration/statistics.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/pipeline/block_run.h"

namespace leq {
namespace {

// Bytes for each number of X^T X that a method solves with: the factor's triangle in double and
// what is made of it; or that losses are weighed with. And for each weight of the linear in work:
// f32 copies, codes, planes, and what the losses are measured with.
constexpr std::uint64_t kBytesPerSolved = 4 + 8;
constexpr std::uint64_t kBytesPerWeighed = sizeof(float);
constexpr std::uint64_t kBytesPerWeight = 4 * sizeof(float);
// Tables, stacks, buffers of files.
constexpr std::uint64_t kFixedBytes = 32 << 20;

std::uint64_t statistics_bytes(std::int64_t columns, std::int64_t samples, bool hessian) {
  const auto k = static_cast<std::uint64_t>(columns);
  return k * (2 * sizeof(float) + 3 * sizeof(double)) + sizeof(InputStatistics) +
         k * static_cast<std::uint64_t>(samples) * sizeof(float) +
         (hessian ? k * k * sizeof(double) : 0);
}

struct BlockSizes {
  std::uint64_t numbers = 0;  // of all tensors of a block
  std::uint64_t largest = 0;  // of one linear
};

BlockSizes block_sizes(const ModelConfig& config) {
  ModelConfig one = config;
  one.layers = 1;
  BlockSizes sizes;
  for (const TensorSpec& spec : tensor_list(one)) {
    if (!spec.name.starts_with("layers.")) continue;
    std::uint64_t numbers = 1;
    for (const std::int64_t size : spec.shape) numbers *= static_cast<std::uint64_t>(size);
    sizes.numbers += numbers;
    if (is_block_linear(spec.role)) sizes.largest = std::max(sizes.largest, numbers);
  }
  return sizes;
}

}  // namespace

CalibrationMemory plan_calibration(const ModelConfig& config, const CalibrationShape& shape,
                                   const Layout& layout, std::uint64_t limit) {
  const std::array<std::int64_t, 4> inputs = {config.width, config.heads * config.head_dim,
                                              config.width, config.hidden};
  const std::int64_t widest = *std::max_element(inputs.begin(), inputs.end());
  const BlockSizes sizes = block_sizes(config);
  CalibrationMemory memory;
  memory.block = sizes.numbers * sizeof(float);
  const std::uint64_t one = statistics_bytes(widest, shape.sample_tokens, shape.hessian_of_one);
  std::uint64_t all = 0;
  for (const std::int64_t columns : inputs) {
    all += statistics_bytes(columns, shape.sample_tokens, shape.hessian_together);
  }
  memory.statistics = shape.together ? std::max(all, one) : one;
  const auto k = static_cast<std::uint64_t>(widest);
  const std::uint64_t of_hessian = shape.hessian_of_one     ? kBytesPerSolved
                                   : shape.hessian_together ? kBytesPerWeighed
                                                            : 0;
  memory.method = sizes.largest * kBytesPerWeight + kFixedBytes + k * k * of_hessian;
  if (shape.hidden) {
    const auto window = static_cast<std::uint64_t>(shape.length * config.width) * sizeof(float);
    const auto input = static_cast<std::uint64_t>(shape.length * widest) * sizeof(float);
    // X^T X lays the input out once more.
    const bool hessian = shape.hessian_of_one || shape.hessian_together;
    memory.forward =
        BlockRun::bytes(config, layout, shape.length) + window + (hessian ? 2 * input : input);
    memory.hidden = window * static_cast<std::uint64_t>(shape.windows);
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
