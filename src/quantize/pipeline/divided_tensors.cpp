#include "quantize/pipeline/divided_tensors.h"

#include <utility>

#include "base/error.h"
#include "comm/division.h"
#include "quantize/pipeline/tensor_bytes.h"

namespace leq {

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
