// Error of chosen codes compared with the original weight: in the weights themselves, and in the
// outputs for the calibration tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "comm/communicator.h"
#include "quantize/calibration/statistics.h"
#include "quantize/methods/hessian.h"
#include "quantize/methods/method.h"
#include "tensor/chosen_codes.h"
#include "tensor/quant_scheme.h"

namespace leq {

// The values [N][K] of codes in f32, as the file's reader computes them. int: s * c;
// uint: s * (u - z); otherwise by the scheme's format (tensor/code_formats.h). Throws Error if the
// sizes do not fit rows, columns and scheme.
std::vector<float> dequantize(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                              const QuantScheme& scheme);

// Two weights [N][K] to compare: `found` is the quantized version of `wanted`.
struct WeightPair {
  std::span<const float> wanted, found;
  std::int64_t rows = 0;     // N
  std::int64_t columns = 0;  // K
  ThreadPool* pool = nullptr;
  Communicator* ranks = &one_rank();  // ranks, each of which has some of the rows, in order
};

// All errors are relative: 0 = no difference, 1 = the error of an all-zero weight; 0 if both are 0.
// weight_error: ||W - Wq||^2 / ||W||^2.
double weight_error(const WeightPair& pair);
// sum h_k (W - Wq)_nk^2 / sum h_k W_nk^2, where h_k is the mean square of input channel k.
double diagonal_error(const WeightPair& pair, const InputStatistics& statistics);
// tr[(W - Wq) H (W - Wq)^T] / tr[W H W^T]: relative squared error of the outputs for the
// calibration tokens, with products in f32. Throws Error without H.
double proxy_error(const WeightPair& pair, const InputStatistics& statistics);
// Computes proxy_error from the errors that a method has computed for this rank's rows.
double proxy_error(const OutputErrors& outputs, Communicator& ranks);

// Squared error in the outputs caused by weight errors d, summed over tokens: d H d^T, where H is
// statistics.hessian or, if that is unknown, its diagonal. Products in f32. All results have the
// same unknown factor, which does not depend on d.
class OutputWeights {
 public:
  // The statistics must outlive the object.
  OutputWeights(const InputStatistics& statistics, ThreadPool* pool);

  // [N] error of each row of `rows` [N][K].
  std::vector<double> errors(std::span<const float> rows) const;

  const InputStatistics& statistics() const { return statistics_; }
  ThreadPool* pool() const { return pool_; }

 private:
  const InputStatistics& statistics_;
  ThreadPool* pool_;
  std::optional<Hessian> hessian_;
};

}  // namespace leq
