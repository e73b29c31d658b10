#include "quantize/quantize_model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/thread_pool.h"

namespace leq {
namespace {

// Rows of one task: whole panels, about 4 MB of f32 for a width of 4096.
constexpr std::int64_t kTaskRows = 4 * kPanelRows;

struct Packed {
  PackedWeight weight;
  double error = 0;   // sum of squared differences
  double energy = 0;  // sum of squares
};

void check_finite(std::span<const float> values, std::int64_t first_row, std::int64_t columns,
                  const std::string& name) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    fail("tensor ", name, ": row ", first_row + static_cast<std::int64_t>(i) / columns, ", column ",
         static_cast<std::int64_t>(i) % columns, " is ", values[i],
         "; the checkpoint is damaged, get it again");
  }
}

void measure(Packed& packed, std::span<const float> values) {
  const WeightView view = packed.weight.view();
  std::vector<float> row(static_cast<std::size_t>(view.columns));
  for (std::int64_t r = 0; r < view.rows; ++r) {
    unpack_row(view, r, row);
    const float* want = values.data() + r * view.columns;
    double error = 0, energy = 0;
    for (std::int64_t k = 0; k < view.columns; ++k) {
      const double difference =
          static_cast<double>(want[k]) - static_cast<double>(row[static_cast<std::size_t>(k)]);
      error += difference * difference;
      energy += static_cast<double>(want[k]) * static_cast<double>(want[k]);
    }
    packed.error += error;
    packed.energy += energy;
  }
}

void append(std::vector<std::byte>& to, const std::vector<std::byte>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Planes of row blocks that are whole panels follow one another: joined, they are the tensor's.
PackedWeight join(std::vector<Packed>& parts, std::int64_t rows) {
  PackedWeight whole = std::move(parts.front().weight);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    append(whole.codes, parts[i].weight.codes);
    append(whole.scales, parts[i].weight.scales);
    append(whole.zeros, parts[i].weight.zeros);
    append(whole.sums, parts[i].weight.sums);
    parts[i].weight = {};
  }
  whole.rows = rows;
  return whole;
}

// A tensor as one piece where its rows share a number (a scale for the whole tensor, or the common
// factor of f16 group scales), else in blocks of rows, packed by all threads.
bool rows_are_independent(const QuantScheme& scheme) {
  return scheme.is_float() || scheme.scaling == Scaling::row;
}

Packed pack_rows(const TensorInput& tensor, const TensorPlan& plan, std::int64_t first,
                 std::int64_t count) {
  const std::int64_t columns = tensor.shape.size() == 2 ? tensor.shape[1] : tensor.shape[0];
  std::vector<float> values(static_cast<std::size_t>(count * columns));
  if (tensor.shape.size() == 2)
    tensor.read(first, count, values);
  else
    tensor.read(0, columns, values);
  check_finite(values, first, columns, tensor.name);
  Packed packed;
  packed.weight = pack_weight(values, count, columns, plan.scheme, plan.act, tensor.name);
  measure(packed, values);
  return packed;
}

}  // namespace

TensorPlan plan_tensor(TensorRole role, const QuantScheme& type, bool tied, ActChoice act) {
  constexpr QuantScheme kF32 = {};
  if (role == TensorRole::vector || role == TensorRole::position_embedding)
    return {kF32, ActKind::none};
  if (type.is_float()) return {type, ActKind::none};
  const bool table = role == TensorRole::head || role == TensorRole::token_embedding;
  const QuantScheme scheme = table ? QuantScheme{CodeKind::int_, 8, Scaling::row, 0} : type;
  // nf4 and b1 weights take f32 inputs.
  if (act == ActChoice::none || !scheme.is_integer()) return {scheme, ActKind::none};
  switch (role) {
    case TensorRole::qkv:
    case TensorRole::gate_up:
      return {scheme, ActKind::row};
    case TensorRole::token_embedding:
      return {scheme, tied ? ActKind::g128 : ActKind::none};
    default:
      return {scheme, ActKind::g128};
  }
}

QuantizeResult write_tensors(LeqWriter& writer, std::span<const TensorInput> tensors,
                             const QuantizeOptions& options,
                             const std::function<void(std::int64_t, std::int64_t)>& progress) {
  ThreadPool pool(options.threads);
  QuantizeResult result;
  std::int64_t done = 0;
  for (const TensorInput& tensor : tensors) {
    const TensorPlan plan = plan_tensor(tensor.role, options.type, options.tied, options.act);
    const std::int64_t rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
    const std::int64_t block = rows_are_independent(plan.scheme) ? kTaskRows : rows;
    std::vector<Packed> parts(static_cast<std::size_t>((rows + block - 1) / block));
    pool.run(std::ssize(parts), [&](std::int64_t task, int) {
      const std::int64_t first = task * block;
      parts[static_cast<std::size_t>(task)] =
          pack_rows(tensor, plan, first, std::min(block, rows - first));
    });
    double error = 0, energy = 0;
    for (const Packed& part : parts) {
      error += part.error;
      energy += part.energy;
    }
    const double relative = energy > 0 ? error / energy : 0;
    const PackedWeight weight = join(parts, rows);
    writer.add_tensor(tensor.name, tensor.shape, weight, plan.scheme.is_float() ? "none" : "absmax",
                      relative);
    if (tensor.drop) tensor.drop();
    result.tensor_bytes +=
        weight.codes.size() + weight.scales.size() + weight.zeros.size() + weight.sums.size();
    if (relative > result.worst_error) {
      result.worst_error = relative;
      result.worst_tensor = tensor.name;
    }
    progress(++done, std::ssize(tensors));
  }
  return result;
}

}  // namespace leq
