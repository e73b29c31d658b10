// Serialization of a quantized tensor, which is sent to the rank that writes the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "quantize/run/quantize_tensor.h"
#include "ranks/communicator.h"

namespace leq {

std::vector<std::byte> tensor_bytes(const QuantizedTensor& tensor);
// Throws Error if the bytes are not a valid tensor.
QuantizedTensor tensor_of_bytes(std::span<const std::byte> bytes);

// Appends one tensor, preceded by its size.
void append_tensor(std::vector<std::byte>& to, const QuantizedTensor& tensor);
// Returns all appended tensors, in order. Throws Error as tensor_of_bytes does.
std::vector<QuantizedTensor> tensors_of_bytes(std::span<const std::byte> bytes);

// Tensors that several ranks quantize: each rank quantizes its own tensors, in a common order.
class DividedTensors {
 public:
  // `sizes`: one per tensor. Assigns tensors so that the ranks' sums of sizes are nearly equal.
  DividedTensors(Communicator& ranks, std::span<const std::int64_t> sizes);

  bool is_own(std::size_t tensor) const { return owners_[tensor] == ranks_.rank(); }
  // Adds the next tensor that this rank has quantized.
  void add(QuantizedTensor tensor);
  // To be called after all ranks have added their tensors: gathers all tensors on the receivers.
  void exchange(Receivers to, std::string_view site);
  // Returns the next of all tensors, in order.
  QuantizedTensor take_next();

 private:
  std::deque<QuantizedTensor>& of(int rank) { return of_rank_[static_cast<std::size_t>(rank)]; }

  Communicator& ranks_;
  std::vector<int> owners_;
  std::vector<std::deque<QuantizedTensor>> of_rank_;
  std::size_t next_ = 0;
};

}  // namespace leq
