#include "quantize/run/divided_tensors.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "ranks/communicator.h"

namespace leq {
namespace {

constexpr std::string_view kSource = "a tensor from another rank";

class Writer {
 public:
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
  std::vector<std::byte> take() { return std::move(made_); }

 private:
  void bytes(std::span<const std::byte> more) {
    made_.insert(made_.end(), more.begin(), more.end());
  }

  std::vector<std::byte> made_;
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
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  require(weight.rows > 0 && weight.rows < kMost && weight.columns > 0 && weight.columns < kMost,
          kSource, ": ", weight.rows, " x ", weight.columns);
  const PlaneBytes want = plane_bytes(weight.scheme, weight.act, weight.rows, weight.columns);
  require(weight.codes.size() == want.codes && weight.scales.size() == want.scales &&
              weight.zeros.size() == want.zeros && weight.sums.size() == want.sums,
          kSource, ": planes that do not fit ", weight.rows, " x ", weight.columns);
}

}  // namespace

std::vector<std::byte> tensor_bytes(const QuantizedTensor& tensor) {
  const PackedWeight& weight = tensor.weight;
  const TensorRecord& record = tensor.record;
  Writer writer;
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
  return writer.take();
}

QuantizedTensor tensor_of_bytes(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, kSource);
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
  require(reader.left() == 0, kSource, ": ", reader.left(), " bytes too many");
  return tensor;
}

void append_tensor(std::vector<std::byte>& to, const QuantizedTensor& tensor) {
  const std::vector<std::byte> bytes = tensor_bytes(tensor);
  const auto size = static_cast<std::uint64_t>(bytes.size());
  const auto front = std::as_bytes(std::span(&size, 1));
  to.insert(to.end(), front.begin(), front.end());
  to.insert(to.end(), bytes.begin(), bytes.end());
}

std::vector<QuantizedTensor> tensors_of_bytes(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, kSource);
  std::vector<QuantizedTensor> tensors;
  while (reader.left() > 0) {
    const auto size = reader.read<std::uint64_t>("a size");
    tensors.push_back(tensor_of_bytes(reader.take(size, "a tensor")));
  }
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
