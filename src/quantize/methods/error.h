// Error of chosen codes against the weight: in the weights themselves, and in the outputs on the
// calibration tokens.
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

// The numbers [N][K] that codes stand for, in f32 as the file's reader computes them:
//   int: s * c; uint: s * (u - z); else by the scheme's format (tensor/code_formats.h).
// Throws Error where the sizes do not fit rows, columns and scheme.
std::vector<float> dequantize(const ChosenCodes& chosen, std::int64_t rows, std::int64_t columns,
                              const QuantScheme& scheme);

// Two weights [N][K] to compare: `found` is the quantized `wanted`.
struct WeightPair {
  std::span<const float> wanted, found;
  std::int64_t rows = 0;     // N
  std::int64_t columns = 0;  // K
  ThreadPool* pool = nullptr;
  Communicator* ranks = &one_rank();  // each has some of the rows, in rank order
};

// All are relative: 0 = no difference, 1 = the error of an all-zero weight; 0 where both are 0. ||W
// - Wq||^2 / ||W||^2.
double weight_error(const WeightPair& pair);
// sum h_k (W - Wq)_nk^2 / sum h_k W_nk^2, with h_k the mean square of input channel k.
double diagonal_error(const WeightPair& pair, const InputStatistics& statistics);
// tr[(W - Wq) H (W - Wq)^T] / tr[W H W^T]: the relative squared error of the outputs on the
// calibration tokens, products in f32. Throws Error without H.
double proxy_error(const WeightPair& pair, const InputStatistics& statistics);
// The same from the errors that a method computed for this rank's rows.
double proxy_error(const OutputErrors& outputs, Communicator& ranks);

// The squared error in the outputs of weight errors d, summed over tokens: d H d^T with H =
// statistics.hessian, products in f32, or with its diagonal where only that is known. All scaled by
// one number, the same for any d.
class OutputWeights {
 public:
  // The statistics must outlive it.
  OutputWeights(const InputStatistics& statistics, ThreadPool* pool);

  // The error for each row of `rows` [N][K]: [N].
  std::vector<double> errors(std::span<const float> rows) const;

  const InputStatistics& statistics() const { return statistics_; }
  ThreadPool* pool() const { return pool_; }

 private:
  const InputStatistics& statistics_;
  ThreadPool* pool_;
  std::optional<Hessian> hessian_;
};

}  // namespace leq
