#include "quantize/run/quantize_model.h"

#include <string_view>

#include "base/json.h"
#include "model/weights.h"
#include "quantize/run/divided_tensors.h"

namespace leq {
namespace {

// Adds tensors to the file and accumulates totals for the result.
class Adder {
 public:
  explicit Adder(LeqWriter* writer) : writer_(writer) {}

  void add(const std::string& name, const Shape& shape, const QuantizedTensor& tensor) {
    const TensorRecord& record = tensor.record;
    const PackedWeight& weight = tensor.weight;
    writer_->add_tensor(name, shape, weight, facts_of(record));
    Json more = Json::object();
    if (record.loss) more[record.loss_of_hessian ? "loss" : "diagonal_loss"] = *record.loss;
    if (!record.note.empty()) more["note"] = record.note;
    if (!record.source.empty()) more["source"] = record.source;
    if (!record.fold.empty()) more["fold"] = record.fold;
    writer_->describe(name, more);
    result.tensor_bytes +=
        weight.codes.size() + weight.scales.size() + weight.zeros.size() + weight.sums.size();
    if (record.error > result.worst_error) {
      result.worst_error = record.error;
      result.worst_tensor = name;
    }
    if (record.loss.value_or(0) > result.worst_loss) {
      result.worst_loss = *record.loss;
      result.worst_loss_tensor = name;
    }
  }

  QuantizeResult result;

 private:
  LeqWriter* writer_;  // null on ranks that do not write
};

// Number of tensors from `first` on that are quantized together: as many as ranks divide at a time,
// or only those before the start of a finished block.
std::size_t run_of_tensors(std::span<const TensorInput> tensors, std::size_t first,
                           const WriteOptions& options) {
  const std::size_t most =
      options.ranks->size() == 1 ? 1 : 4 * static_cast<std::size_t>(options.ranks->size());
  std::size_t count = 0;
  while (count < most && first + count < tensors.size() &&
         !(options.finished && tensors[first + count].name.starts_with("layers."))) {
    ++count;
  }
  return count;
}

std::int64_t numbers_of(const TensorInput& tensor) {
  std::int64_t numbers = 1;
  for (const std::int64_t dimension : tensor.shape) numbers *= dimension;
  return numbers;
}

}  // namespace

QuantizeResult write_tensors(LeqWriter* writer, std::span<const TensorInput> tensors,
                             const WriteOptions& options,
                             const std::function<void(std::int64_t, std::int64_t)>& progress) {
  ThreadPool pool(options.threads);
  Adder adder(writer);
  std::int64_t next_block = 0;
  for (std::size_t first = 0; first < tensors.size();) {
    const std::size_t count = run_of_tensors(tensors, first, options);
    const auto here = tensors.subspan(first, count);
    std::vector<std::int64_t> sizes;
    for (const TensorInput& tensor : here) sizes.push_back(numbers_of(tensor));
    DividedTensors divided(*options.ranks, sizes);
    for (std::size_t i = 0; i < count; ++i) {
      if (!divided.is_own(i)) continue;
      divided.add(quantize_input(here[i], options.plan(here[i].name, here[i].role), pool));
    }
    if (count > 0) divided.exchange(Receivers::leader, here[0].name);
    for (const TensorInput& tensor : here) {
      if (writer != nullptr) adder.add(tensor.name, tensor.shape, divided.take_next());
      progress(static_cast<std::int64_t>(++first), std::ssize(tensors));
    }
    if (count > 0) continue;
    if (options.blocks != nullptr &&
        tensors[first].name.starts_with(layer_tensor(next_block, ""))) {
      // At the first tensor of a finished block, writes all its tensors, also those added by folds.
      for (const BlockTensor& stored : options.blocks->load(next_block)) {
        adder.add(stored.name, stored.shape, stored.quantized);
      }
      ++next_block;
    }
    progress(static_cast<std::int64_t>(++first), std::ssize(tensors));
  }
  return adder.result;
}

}  // namespace leq
