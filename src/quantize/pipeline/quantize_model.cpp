#include "quantize/pipeline/quantize_model.h"

#include <string_view>

#include "base/json.h"
#include "model/weights.h"

namespace leq {
namespace {

// Adds tensors to the file and keeps the totals.
class Adder {
 public:
  explicit Adder(LeqWriter& writer) : writer_(writer) {}

  void add(const std::string& name, const Shape& shape, const QuantizedTensor& tensor) {
    const TensorRecord& record = tensor.record;
    const PackedWeight& weight = tensor.weight;
    writer_.add_tensor(name, shape, weight, facts_of(record));
    Json more = Json::object();
    if (record.loss) more[record.loss_of_hessian ? "loss" : "diagonal_loss"] = *record.loss;
    if (!record.note.empty()) more["note"] = record.note;
    if (!record.fold.empty()) more["fold"] = record.fold;
    writer_.describe(name, more);
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
  LeqWriter& writer_;
};

}  // namespace

QuantizeResult write_tensors(LeqWriter& writer, std::span<const TensorInput> tensors,
                             const WriteOptions& options,
                             const std::function<void(std::int64_t, std::int64_t)>& progress) {
  ThreadPool pool(options.threads);
  Adder adder(writer);
  std::int64_t done = 0;
  std::int64_t next_block = 0;
  for (const TensorInput& tensor : tensors) {
    const bool of_block = options.blocks != nullptr && tensor.name.starts_with("layers.");
    if (!of_block) {
      adder.add(tensor.name, tensor.shape,
                quantize_input(tensor, options.plan(tensor.name, tensor.role), pool));
    } else if (tensor.name.starts_with(layer_tensor(next_block, ""))) {
      // A block's tensors, which folds may have added to, are written where its first one stands.
      for (const BlockTensor& stored : options.blocks->load(next_block)) {
        adder.add(stored.name, stored.shape, stored.quantized);
      }
      ++next_block;
    }
    progress(++done, std::ssize(tensors));
  }
  return adder.result;
}

}  // namespace leq
