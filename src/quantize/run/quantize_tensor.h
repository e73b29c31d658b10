// Converts one tensor's values to the planes of a file, and records the error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "format/leq_writer.h"
#include "quantize/methods/method.h"
#include "ranks/communicator.h"
#include "tensor/pack.h"

namespace leq {

// Facts about a stored tensor that are written to the file.
struct TensorRecord {
  std::string method = "none";      // "absmax", "gptq"; "none" for floats
  double error = 0;                 // |W - Wq|^2 / |W|^2
  std::optional<double> loss = {};  // relative error of the outputs for the calibration tokens, by
                                    // X^T X if it was gathered, otherwise by its diagonal
  bool loss_of_hessian = false;
  float act_scale = 0;  // for act tensor: the step between two codes of the inputs
  OnlineMode online_mode = OnlineMode::safe;  // for act online
  std::string note = {};                      // message of the method about a fallback
  std::string source = {};  // the tensor's type in a checkpoint of mixed types: "Q4_K"
  std::string fold = {};    // checksum of the scales by which inputs are divided; or empty
};

// Converts the record to the form that a file stores.
TensorFacts facts_of(const TensorRecord& record);

struct QuantizedTensor {
  PackedWeight weight;
  TensorRecord record;
};

// Whether several ranks can divide the rows of a tensor; otherwise one rank quantizes all rows.
bool divides_rows(const TensorPlan& plan);

// Quantizes values [rows][columns] according to `plan`; `statistics` of the inputs may be nullptr.
// The result does not depend on the number of threads, nor of ranks, which make the same call and
// divide the rows if divides_rows(plan). Throws Error naming `name` and a value that is not finite.
QuantizedTensor quantize_values(std::span<const float> values, std::int64_t rows,
                                std::int64_t columns, const TensorPlan& plan,
                                const InputStatistics* statistics, const std::string& name,
                                ThreadPool& pool, Communicator& ranks = one_rank());

// Reads a tensor while quantizing it, in blocks of rows if rows share no number.
QuantizedTensor quantize_input(const TensorInput& tensor, const TensorPlan& plan, ThreadPool& pool);

// Dequantizes rows of a stored weight to f32 [rows][columns], from `first` on until `out` is full.
void unpack_rows(const WeightView& weight, std::int64_t first, std::span<float> out,
                 ThreadPool& pool);
// Dequantizes all rows.
void unpack_all(const WeightView& weight, std::span<float> out, ThreadPool& pool);

// Serialization of quantized tensors, which are sent to the rank that writes the file.

void append_tensor(std::vector<std::byte>& to, const QuantizedTensor& tensor);
// Returns all appended tensors, in order. Throws Error if the bytes are not valid tensors.
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
