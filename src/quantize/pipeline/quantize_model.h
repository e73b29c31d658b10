// Writes the tensors of a model into a .leq file: those outside the blocks, and the blocks where no
// calibration is wanted, are read, quantized and written one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "comm/communicator.h"
#include "format/leq_writer.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/pipeline/partial_run.h"

namespace leq {

struct WriteOptions {
  TensorPlanner plan;
  bool calibrated = false;             // the blocks are finished, in place of quantizing theirs
  const PartialRun* blocks = nullptr;  // which the leader has
  int threads = 0;                     // 0 = one for each usable core
  Communicator* ranks = &one_rank();   // that divide what is quantized here
};

struct QuantizeResult {
  std::uint64_t tensor_bytes = 0;
  double worst_error = 0;  // relative squared error of weights
  std::string worst_tensor;
  double worst_loss = 0;  // the same of outputs on the calibration text, where there is one
  std::string worst_loss_tensor;
};

// At no time is more than one tensor (of finished blocks: one block) in memory; of N ranks, 4 N
// tensors on the leader, who alone has a writer. `progress(done, total)` counts tensors. Throws
// Error naming a value that is not finite.
QuantizeResult write_tensors(LeqWriter* writer, std::span<const TensorInput> tensors,
                             const WriteOptions& options,
                             const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace leq
