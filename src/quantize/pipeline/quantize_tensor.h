// Converts one tensor's values to the planes of a file, and records the error.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "format/leq_writer.h"
#include "quantize/methods/method.h"
#include "quantize/methods/tensor_plan.h"
#include "tensor/pack.h"

namespace leq {

// Facts about a stored tensor, for the file and its readers.
struct TensorRecord {
  std::string method = "none";      // "absmax", "gptq"; "none" for floats
  double error = 0;                 // |W - Wq|^2 / |W|^2
  std::optional<double> loss = {};  // the same of the outputs on the calibration inputs: with
                                    // X^T X where it was gathered, else with its diagonal
  bool loss_of_hessian = false;
  float act_scale = 0;  // act tensor: the step between two codes of the inputs
  OnlineMode online_mode = OnlineMode::safe;  // act online
  std::string note = {};                      // message of the method, such as a fallback
  std::string source = {};  // the tensor's type in the checkpoint, where types differ: "Q4_K"
  std::string fold = {};    // checksum of the scales that its inputs are divided by; or empty
};

// The record in the form that a file stores.
TensorFacts facts_of(const TensorRecord& record);

struct QuantizedTensor {
  PackedWeight weight;
  TensorRecord record;
};

// Whether several ranks can divide the rows of a tensor; if not, one rank quantizes all of it.
bool divides_rows(const TensorPlan& plan);

// Quantizes values [rows][columns] as `plan` says, with `statistics` of the inputs, or nullptr. The
// same result for any number of threads, and for several ranks that make the same call and divide
// the rows: divides_rows(plan). Throws Error naming `name` and a value that is not finite.
QuantizedTensor quantize_values(std::span<const float> values, std::int64_t rows,
                                std::int64_t columns, const TensorPlan& plan,
                                const InputStatistics* statistics, const std::string& name,
                                ThreadPool& pool, Communicator& ranks = one_rank());

// Reads a tensor while quantizing it: by blocks of rows where rows share no number.
QuantizedTensor quantize_input(const TensorInput& tensor, const TensorPlan& plan, ThreadPool& pool);

// Dequantizes rows of a stored weight to f32 [rows][columns], from `first` on as many as fit.
void unpack_rows(const WeightView& weight, std::int64_t first, std::span<float> out,
                 ThreadPool& pool);
// Dequantizes all rows.
void unpack_all(const WeightView& weight, std::span<float> out, ThreadPool& pool);

}  // namespace leq
