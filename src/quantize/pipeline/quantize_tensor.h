// One tensor's values to the planes of a file, with what is known of the error.
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

// What a file and its reader are told of a stored tensor.
struct TensorRecord {
  std::string method = "none";      // "absmax", "gptq"; "none" for floats
  double error = 0;                 // |W - Wq|^2 / |W|^2
  std::optional<double> loss = {};  // the same of the outputs on the calibration inputs: with
                                    // X^T X where it was gathered, else with its diagonal
  bool loss_of_hessian = false;
  float act_scale = 0;  // act tensor: the step between two codes of the inputs
  OnlineMode online_mode = OnlineMode::safe;  // act online
  std::string note = {};                      // of the method: a fallback, say
  std::string source = {};  // the tensor's type in the checkpoint, where types differ: "Q4_K"
  std::string fold = {};    // checksum of the scales that its inputs are divided by; empty: none
};

// As a file names it.
TensorFacts facts_of(const TensorRecord& record);

struct QuantizedTensor {
  PackedWeight weight;
  TensorRecord record;
};

// Whether several ranks can divide the rows of a tensor; else one quantizes all of it.
bool divides_rows(const TensorPlan& plan);

// Values [rows][columns] as `plan` says; `statistics` of the inputs, or nullptr where there are
// none. The same for any number of threads, and for several ranks that make the same call and
// divide the rows: divides_rows(plan). Throws Error naming `name` and a value that is not finite.
QuantizedTensor quantize_values(std::span<const float> values, std::int64_t rows,
                                std::int64_t columns, const TensorPlan& plan,
                                const InputStatistics* statistics, const std::string& name,
                                ThreadPool& pool, Communicator& ranks = one_rank());

// A tensor read as it is needed: by blocks of rows where no number is shared between rows.
QuantizedTensor quantize_input(const TensorInput& tensor, const TensorPlan& plan, ThreadPool& pool);

// Rows of a stored weight as f32 [rows][columns], from `first` on as many as there is room for.
void unpack_rows(const WeightView& weight, std::int64_t first, std::span<float> out,
                 ThreadPool& pool);
// All of them.
void unpack_all(const WeightView& weight, std::span<float> out, ThreadPool& pool);

}  // namespace leq
