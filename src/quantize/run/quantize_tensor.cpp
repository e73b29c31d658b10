#include "quantize/run/quantize_tensor.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>

#include "base/bytes.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "quantize/methods/method.h"
#include "quantize/methods/second_order.h"
#include "quantize/rewrites/fold.h"
#include "ranks/communicator.h"

namespace leq {
namespace {

// Rows per task: a multiple of panels, about 4 MB of f32 for a width of 4096.
constexpr std::int64_t kTaskRows = 4 * kPanelRows;

void append(std::vector<std::byte>& to, const std::vector<std::byte>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Concatenates the planes of parts that consist of whole panels. In the result, the second plane of
// codes follows the complete first one.
PackedWeight join_panels(std::vector<PackedWeight> parts, std::int64_t rows) {
  std::vector<std::byte> high;
  PackedWeight whole;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    PackedWeight part = std::exchange(parts[i], {});
    const CodePlanes planes = code_planes(part.scheme, part.rows, part.columns);
    if (planes.high_bits > 0) {
      high.insert(high.end(), part.codes.begin() + planes.high_at, part.codes.end());
      part.codes.resize(static_cast<std::size_t>(planes.high_at));
    }
    if (i == 0) {
      whole = std::move(part);
      continue;
    }
    append(whole.codes, part.codes);
    append(whole.scales, part.scales);
    append(whole.zeros, part.zeros);
    append(whole.sums, part.sums);
  }
  append(whole.codes, high);
  whole.rows = rows;
  return whole;
}

// The tensor in the plan's scheme, with the codes and scales of its checkpoint, method "source" and
// no error: dequantizing gives the checkpoint's values. Returns nullopt if the plan names a method,
// or if the scheme cannot store every code exactly.
std::optional<QuantizedTensor> keep_codes_of(const TensorInput& tensor, const TensorPlan& plan,
                                             ThreadPool& pool) {
  if (!tensor.read_codes || plan.method != nullptr || !plan.label.empty() ||
      !plan.scheme.takes_codes() || tensor.shape.size() != 2) {
    return std::nullopt;
  }
  const std::int64_t rows = tensor.shape[0];
  const std::int64_t columns = tensor.shape[1];
  std::vector<PackedWeight> parts(static_cast<std::size_t>((rows + kTaskRows - 1) / kTaskRows));
  std::atomic<bool> exact = true;
  // One buffer per thread, because allocating one per task would map its pages again each time.
  std::vector<ChosenCodes> codes_of(static_cast<std::size_t>(pool.threads()));
  pool.run(std::ssize(parts), [&](std::int64_t task, int worker) {
    if (!exact) return;
    const std::int64_t first = task * kTaskRows;
    const std::int64_t count = std::min(kTaskRows, rows - first);
    ChosenCodes& codes = codes_of[static_cast<std::size_t>(worker)];
    if (!tensor.read_codes(plan.scheme, first, count, codes)) {
      exact = false;
      return;
    }
    parts[static_cast<std::size_t>(task)] =
        pack_codes(codes, count, columns, plan.scheme, plan.act);
  });
  if (!exact) return std::nullopt;
  QuantizedTensor result;
  result.weight = join_panels(std::move(parts), rows);
  result.record.method = "source";
  result.record.online_mode = plan.online_mode;
  return result;
}

void check_finite(std::span<const float> values, std::int64_t first_row, std::int64_t columns,
                  const std::string& name) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    fail("tensor ", name, ": row ", first_row + static_cast<std::int64_t>(i) / columns, ", column ",
         static_cast<std::int64_t>(i) % columns, " is ", values[i],
         "; the checkpoint is damaged, get it again");
  }
}

// `found`: the values as the scheme stores them.
void check_stored(std::span<const float> values, std::span<const float> found,
                  std::int64_t first_row, std::int64_t columns, const QuantScheme& scheme,
                  const std::string& name) {
  const auto lost = std::ranges::find_if(found, [](float x) { return !std::isfinite(x); });
  if (lost == found.end()) return;
  const std::int64_t row = (lost - found.begin()) / columns;
  const auto of_row =
      values.subspan(static_cast<std::size_t>(row * columns), static_cast<std::size_t>(columns));
  const auto largest = std::ranges::max_element(of_row, {}, [](float x) { return std::fabs(x); });
  fail("tensor ", name, ": row ", first_row + row, ", column ", largest - of_row.begin(), " is ",
       *largest, ", beyond what ", scheme_name(scheme), " can hold; store it as bf16 or f32");
}

// Squared differences between the weight and its packed form, and squares of the weight.
struct Squares {
  double error = 0, energy = 0;
};

Squares squares_of(const WeightView& view, std::span<const float> values, std::int64_t first_row,
                   const std::string& name) {
  Squares sums;
  std::vector<float> row(static_cast<std::size_t>(view.columns));
  for (std::int64_t r = 0; r < view.rows; ++r) {
    unpack_row(view, r, row);
    const float* want = values.data() + r * view.columns;
    const auto wanted = std::span(want, row.size());
    check_stored(wanted, row, first_row + r, view.columns, view.scheme, name);
    for (std::int64_t k = 0; k < view.columns; ++k) {
      const double difference =
          static_cast<double>(want[k]) - static_cast<double>(row[static_cast<std::size_t>(k)]);
      sums.error += difference * difference;
      sums.energy += static_cast<double>(want[k]) * static_cast<double>(want[k]);
    }
  }
  return sums;
}

// If rows share a number (a scale for the whole tensor, or the common factor of f16 group scales),
// they are packed as one piece; otherwise all threads pack blocks of rows.
bool rows_are_independent(const QuantScheme& scheme) {
  return scheme.is_float() || scheme.scaling == Scaling::row || scheme.is_super() ||
         scheme.has_table();
}

using RowReader =
    std::function<void(std::int64_t first, std::int64_t count, std::span<float> values)>;

QuantizedTensor nearest_codes_of(const RowReader& read, std::int64_t rows, std::int64_t columns,
                                 const TensorPlan& plan, const std::string& name,
                                 ThreadPool& pool) {
  const std::int64_t block = rows_are_independent(plan.scheme) ? kTaskRows : rows;
  std::vector<PackedWeight> parts(static_cast<std::size_t>((rows + block - 1) / block));
  std::vector<Squares> squares(parts.size());
  pool.run(std::ssize(parts), [&](std::int64_t task, int) {
    const std::int64_t first = task * block;
    const std::int64_t count = std::min(block, rows - first);
    std::vector<float> values(static_cast<std::size_t>(count * columns));
    read(first, count, values);
    check_finite(values, first, columns, name);
    PackedWeight& part = parts[static_cast<std::size_t>(task)];
    part = pack_weight(values, count, columns, plan.scheme, plan.act, name);
    squares[static_cast<std::size_t>(task)] = squares_of(part.view(), values, first, name);
  });
  Squares all;
  for (const Squares& part : squares) {
    all.error += part.error;
    all.energy += part.energy;
  }
  QuantizedTensor result;
  result.weight = join_panels(std::move(parts), rows);
  result.record.method = plan.scheme.is_float() ? "none" : "absmax";
  result.record.online_mode = plan.online_mode;
  result.record.error = all.energy > 0 ? all.error / all.energy : 0;
  return result;
}

// Joins the rows of all ranks, each of which has whole panels.
PackedWeight join_ranks(Communicator& ranks, PackedWeight own, std::int64_t rows,
                        std::string_view name) {
  if (ranks.size() == 1) return own;
  const CodePlanes planes = code_planes(own.scheme, own.rows, own.columns);
  const auto first_plane =
      own.codes.begin() + (planes.high_bits > 0 ? planes.high_at : std::ssize(own.codes));
  const std::vector<std::byte> high(first_plane, own.codes.end());
  own.codes.erase(first_plane, own.codes.end());
  for (auto* plane : {&own.codes, &own.scales, &own.zeros, &own.sums})
    *plane = join_lists(ranks, std::move(*plane), name);
  append(own.codes, join_lists(ranks, high, name));
  own.rows = rows;
  return own;
}

// Each rank chooses the codes of its own rows, and every rank receives all codes. `outputs`: losses
// of this rank's rows, if the method has computed them.
QuantizedTensor choose_codes(const MethodInput& own, std::int64_t rows, const TensorPlan& plan,
                             std::optional<OutputErrors>& outputs) {
  MethodResult chosen = plan.method->choose(own);
  PackedWeight mine = {.scheme = plan.scheme,
                       .act = plan.act,
                       .columns = own.columns,
                       .scale_mul = chosen.codes.scale_mul};
  if (own.rows > 0) mine = pack_codes(chosen.codes, own.rows, own.columns, plan.scheme, plan.act);
  QuantizedTensor result;
  result.weight = join_ranks(*own.ranks, std::move(mine), rows, own.name);
  result.record.method = plan.method->name;
  result.record.online_mode = plan.online_mode;
  result.record.note = std::move(chosen.note);
  outputs = std::move(chosen.outputs);
  return result;
}

}  // namespace

TensorFacts facts_of(const TensorRecord& record) {
  return {.method = record.method,
          .error = record.error,
          .act_scale = record.act_scale,
          .online_mode = record.online_mode};
}

bool divides_rows(const TensorPlan& plan) {
  return plan.method != nullptr && plan.method->divides_rows &&
         plan.scheme.scaling != Scaling::tensor;
}

QuantizedTensor quantize_values(std::span<const float> values, std::int64_t rows,
                                std::int64_t columns, const TensorPlan& plan,
                                const InputStatistics* statistics, const std::string& name,
                                ThreadPool& pool, Communicator& ranks) {
  const bool by_method = plan.method != nullptr && !plan.scheme.is_float();
  ensure(ranks.size() == 1 || (by_method && divides_rows(plan)), name, ": ranks divide its rows");
  const Slice own = own_rows(ranks, rows, kPanelRows);
  const auto own_values = values.subspan(static_cast<std::size_t>(own.first * columns),
                                         static_cast<std::size_t>(own.count() * columns));
  QuantizedTensor result;
  std::optional<OutputErrors> outputs;
  if (by_method) {
    check_finite(own_values, own.first, columns, name);
    MethodOptions options;
    if (statistics != nullptr) options.shrinkage = shrinkage_of(columns, statistics->tokens);
    result = choose_codes(
        {name, own_values, own.count(), columns, plan.scheme, statistics, options, &pool, &ranks},
        rows, plan, outputs);
  } else {
    const auto read = [&](std::int64_t first, std::int64_t count, std::span<float> out) {
      std::copy_n(values.begin() + first * columns, count * columns, out.begin());
    };
    result = nearest_codes_of(read, rows, columns, plan, name, pool);
  }
  TensorRecord& record = result.record;
  if (!plan.label.empty()) record.method = plan.label;
  if (plan.scheme.is_float() || (!by_method && statistics == nullptr)) return result;
  std::vector<float> found(own_values.size());
  unpack_rows(result.weight.view(), own.first, found, pool);
  check_stored(own_values, found, own.first, columns, plan.scheme, name);
  const WeightPair pair = {own_values, found, own.count(), columns, &pool, &ranks};
  if (by_method) record.error = weight_error(pair);
  if (statistics == nullptr) return result;
  record.loss_of_hessian = !statistics->hessian.empty();
  record.loss = outputs                  ? proxy_error(*outputs, ranks)
                : record.loss_of_hessian ? proxy_error(pair, *statistics)
                                         : diagonal_error(pair, *statistics);
  if (has_stored_scale(plan.act)) record.act_scale = static_act_scale(*statistics);
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
  if (auto carried = keep_codes_of(tensor, plan, pool)) {
    result = std::move(*carried);
  } else if (plan.method == nullptr || plan.scheme.is_float()) {
    result = nearest_codes_of(read, rows, columns, plan, tensor.name, pool);
  } else {
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    read(0, rows, values);
    result = quantize_values(values, rows, columns, plan, nullptr, tensor.name, pool);
  }
  result.record.source = tensor.source_type;
  if (tensor.drop) tensor.drop();
  return result;
}

void unpack_rows(const WeightView& weight, std::int64_t first, std::span<float> out,
                 ThreadPool& pool) {
  const auto columns = static_cast<std::size_t>(weight.columns);
  const auto count = static_cast<std::int64_t>(out.size() / columns);
  ensure(out.size() % columns == 0 && first + count <= weight.rows, "unpack: room for ", out.size(),
         " numbers from row ", first, ", the weight has ", weight.rows, " x ", weight.columns);
  pool.run((count + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int) {
    const std::int64_t last = std::min(count, (task + 1) * kTaskRows);
    for (std::int64_t row = task * kTaskRows; row < last; ++row) {
      unpack_row(weight, first + row,
                 out.subspan(static_cast<std::size_t>(row) * columns, columns));
    }
  });
}

void unpack_all(const WeightView& weight, std::span<float> out, ThreadPool& pool) {
  ensure(std::ssize(out) == weight.rows * weight.columns, "unpack: room for ", out.size(),
         " numbers, the weight has ", weight.rows, " x ", weight.columns);
  unpack_rows(weight, 0, out, pool);
}

// Serialization of quantized tensors, and their division among ranks.

namespace {

constexpr std::string_view kSource = "a tensor from another rank";

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& to) : to_(to) {}
  template <class T>
  void number(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes(std::as_bytes(std::span(&value, 1)));
  }
  void list(std::span<const std::byte> list) {
    number(static_cast<std::uint64_t>(list.size()));
    bytes(list);
  }
  void text(std::string_view text) { list(as_bytes(text)); }

 private:
  void bytes(std::span<const std::byte> more) { to_.insert(to_.end(), more.begin(), more.end()); }

  std::vector<std::byte>& to_;
};

std::vector<std::byte> read_list(ByteReader& reader) {
  const auto bytes = reader.take(reader.read<std::uint64_t>("a size"), "a list");
  return {bytes.begin(), bytes.end()};
}
std::string read_text(ByteReader& reader) {
  return std::string(as_text(reader.take(reader.read<std::uint64_t>("a size"), "a text")));
}
bool read_bool(ByteReader& reader) {
  const auto value = reader.read<std::uint8_t>("a flag");
  require(value <= 1, kSource, ": flag ", int{value});
  return value == 1;
}
template <class Value>
Value known(const std::optional<Value>& value, std::string_view what) {
  require(value.has_value(), kSource, ": unknown ", what);
  return *value;
}

// Checks plane sizes, because readers would access memory past the end of a smaller plane.
void check_planes(const PackedWeight& weight) {
  constexpr std::int64_t kMax = std::int64_t{1} << 30;
  require(weight.rows > 0 && weight.rows < kMax && weight.columns > 0 && weight.columns < kMax,
          kSource, ": ", weight.rows, " x ", weight.columns);
  const PlaneBytes want = plane_bytes(weight.scheme, weight.act, weight.rows, weight.columns);
  require(weight.codes.size() == want.codes && weight.scales.size() == want.scales &&
              weight.zeros.size() == want.zeros && weight.sums.size() == want.sums,
          kSource, ": planes that do not fit ", weight.rows, " x ", weight.columns);
}

}  // namespace

void append_tensor(std::vector<std::byte>& to, const QuantizedTensor& tensor) {
  const PackedWeight& weight = tensor.weight;
  const TensorRecord& record = tensor.record;
  Writer writer(to);
  writer.text(scheme_name(weight.scheme));
  writer.text(act_name(weight.act));
  writer.number(weight.rows);
  writer.number(weight.columns);
  writer.number(weight.scale_mul);
  for (const auto* plane : {&weight.codes, &weight.scales, &weight.zeros, &weight.sums}) {
    writer.list(*plane);
  }
  writer.text(record.method);
  writer.number(record.error);
  writer.number(std::uint8_t{record.loss.has_value()});
  writer.number(record.loss.value_or(0));
  writer.number(std::uint8_t{record.loss_of_hessian});
  writer.number(record.act_scale);
  writer.text(online_mode_name(record.online_mode));
  writer.text(record.note);
  writer.text(record.source);
  writer.text(record.fold);
}

namespace {

QuantizedTensor read_tensor(ByteReader& reader) {
  QuantizedTensor tensor;
  PackedWeight& weight = tensor.weight;
  TensorRecord& record = tensor.record;
  weight.scheme = known(parse_scheme(read_text(reader)), "scheme");
  weight.act = known(parse_act(read_text(reader)), "act");
  weight.rows = reader.read<std::int64_t>("rows");
  weight.columns = reader.read<std::int64_t>("columns");
  weight.scale_mul = reader.read<float>("a factor");
  for (auto* plane : {&weight.codes, &weight.scales, &weight.zeros, &weight.sums}) {
    *plane = read_list(reader);
  }
  check_planes(weight);
  record.method = read_text(reader);
  record.error = reader.read<double>("an error");
  const bool has_loss = read_bool(reader);
  const auto loss = reader.read<double>("a loss");
  if (has_loss) record.loss = loss;
  record.loss_of_hessian = read_bool(reader);
  record.act_scale = reader.read<float>("a scale");
  record.online_mode = known(parse_online_mode(read_text(reader)), "mode");
  record.note = read_text(reader);
  record.source = read_text(reader);
  record.fold = read_text(reader);
  return tensor;
}

}  // namespace

std::vector<QuantizedTensor> tensors_of_bytes(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, kSource);
  std::vector<QuantizedTensor> tensors;
  while (reader.left() > 0) tensors.push_back(read_tensor(reader));
  return tensors;
}

DividedTensors::DividedTensors(Communicator& ranks, std::span<const std::int64_t> sizes)
    : ranks_(ranks),
      owners_(divide_work(sizes, ranks.size())),
      of_rank_(static_cast<std::size_t>(ranks.size())) {}

void DividedTensors::add(QuantizedTensor tensor) { of(ranks_.rank()).push_back(std::move(tensor)); }

void DividedTensors::exchange(Receivers to, std::string_view site) {
  if (ranks_.size() == 1) return;
  std::vector<std::byte> own;
  for (const QuantizedTensor& tensor : of(ranks_.rank())) append_tensor(own, tensor);
  const auto all = gather_bytes(ranks_, own, to, site);
  for (int rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank()) continue;
    for (QuantizedTensor& tensor : tensors_of_bytes(all[static_cast<std::size_t>(rank)])) {
      of(rank).push_back(std::move(tensor));
    }
  }
}

QuantizedTensor DividedTensors::take_next() {
  auto& queue = of(owners_.at(next_++));
  ensure(!queue.empty(), "divided tensors: tensor ", next_ - 1, " is not there");
  QuantizedTensor tensor = std::move(queue.front());
  queue.pop_front();
  return tensor;
}

}  // namespace leq
