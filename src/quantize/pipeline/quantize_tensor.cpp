#include "quantize/pipeline/quantize_tensor.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "quantize/methods/error.h"
#include "quantize/rewrites/act_rounding.h"

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
    for (std::int64_t k = 0; k < view.columns; ++k) {
      const double difference =
          static_cast<double>(want[k]) - static_cast<double>(row[static_cast<std::size_t>(k)]);
      packed.error += difference * difference;
      packed.energy += static_cast<double>(want[k]) * static_cast<double>(want[k]);
    }
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

using RowReader =
    std::function<void(std::int64_t first, std::int64_t count, std::span<float> values)>;

QuantizedTensor nearest_codes_of(const RowReader& read, std::int64_t rows, std::int64_t columns,
                                 const TensorPlan& plan, const std::string& name,
                                 ThreadPool& pool) {
  const std::int64_t block = rows_are_independent(plan.scheme) ? kTaskRows : rows;
  std::vector<Packed> parts(static_cast<std::size_t>((rows + block - 1) / block));
  pool.run(std::ssize(parts), [&](std::int64_t task, int) {
    const std::int64_t first = task * block;
    const std::int64_t count = std::min(block, rows - first);
    std::vector<float> values(static_cast<std::size_t>(count * columns));
    read(first, count, values);
    check_finite(values, first, columns, name);
    Packed& packed = parts[static_cast<std::size_t>(task)];
    packed.weight = pack_weight(values, count, columns, plan.scheme, plan.act, name);
    measure(packed, values);
  });
  double error = 0, energy = 0;
  for (const Packed& part : parts) {
    error += part.error;
    energy += part.energy;
  }
  QuantizedTensor result;
  result.weight = join(parts, rows);
  result.record.method = plan.scheme.is_float() ? "none" : "absmax";
  result.record.online_mode = plan.online_mode;
  result.record.error = energy > 0 ? error / energy : 0;
  return result;
}

void record_loss(QuantizedTensor& result, std::span<const float> values,
                 const InputStatistics& inputs, ThreadPool& pool) {
  std::vector<float> found(values.size());
  unpack_all(result.weight.view(), found, pool);
  const WeightPair pair = {values, found, result.weight.rows, result.weight.columns, &pool};
  result.record.loss_of_hessian = !inputs.hessian.empty();
  result.record.loss =
      inputs.hessian.empty() ? diagonal_error(pair, inputs) : proxy_error(pair, inputs);
}

}  // namespace

TensorFacts facts_of(const TensorRecord& record) {
  return {.method = record.method,
          .error = record.error,
          .act_scale = record.act_scale,
          .online_mode = record.online_mode};
}

QuantizedTensor quantize_values(std::span<const float> values, std::int64_t rows,
                                std::int64_t columns, const TensorPlan& plan,
                                const InputStatistics* statistics, const std::string& name,
                                ThreadPool& pool) {
  QuantizedTensor result;
  if (plan.method == nullptr || plan.scheme.is_float()) {
    const auto read = [&](std::int64_t first, std::int64_t count, std::span<float> out) {
      std::copy_n(values.begin() + first * columns, count * columns, out.begin());
    };
    result = nearest_codes_of(read, rows, columns, plan, name, pool);
  } else {
    check_finite(values, 0, columns, name);
    const MethodResult chosen = plan.method->choose(
        {name, values, rows, columns, plan.scheme, statistics, plan.options, &pool});
    Packed packed;
    packed.weight = pack_codes(chosen.codes, rows, columns, plan.scheme, plan.act);
    measure(packed, values);
    result.weight = std::move(packed.weight);
    result.record.method = plan.method->name;
    result.record.online_mode = plan.online_mode;
    result.record.error = packed.energy > 0 ? packed.error / packed.energy : 0;
    result.record.note = chosen.note;
  }
  if (!plan.label.empty()) result.record.method = plan.label;
  if (statistics != nullptr && !plan.scheme.is_float()) {
    record_loss(result, values, *statistics, pool);
    if (has_stored_scale(plan.act)) {
      result.record.act_scale = static_act_scale(*statistics);
    }
  }
  return result;
}

QuantizedTensor quantize_input(const TensorInput& tensor, const TensorPlan& plan,
                               ThreadPool& pool) {
  const bool matrix = tensor.shape.size() == 2;
  const std::int64_t rows = matrix ? tensor.shape[0] : 1;
  const std::int64_t columns = tensor.shape.back();
  const auto read = [&](std::int64_t first, std::int64_t count, std::span<float> out) {
    if (matrix) {
      tensor.read(first, count, out);
    } else {
      tensor.read(0, columns, out);
    }
  };
  QuantizedTensor result;
  if (plan.method == nullptr || plan.scheme.is_float()) {
    result = nearest_codes_of(read, rows, columns, plan, tensor.name, pool);
  } else {
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    read(0, rows, values);
    result = quantize_values(values, rows, columns, plan, nullptr, tensor.name, pool);
  }
  if (tensor.drop) tensor.drop();
  return result;
}

void unpack_all(const WeightView& weight, std::span<float> out, ThreadPool& pool) {
  const auto columns = static_cast<std::size_t>(weight.columns);
  ensure(out.size() == static_cast<std::size_t>(weight.rows) * columns, "unpack: room for ",
         out.size(), " numbers, the weight has ", weight.rows, " x ", weight.columns);
  pool.run((weight.rows + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    const std::int64_t last = std::min(weight.rows, (task + 1) * kTaskRows);
    for (std::int64_t row = task * kTaskRows; row < last; ++row) {
      unpack_row(weight, row, out.subspan(static_cast<std::size_t>(row) * columns, columns));
    }
  });
}

}  // namespace leq
