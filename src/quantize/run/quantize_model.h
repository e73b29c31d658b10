// Writes the tensors of a model into a .leq file. Tensors outside the blocks, and blocks without
// calibration, are read, quantized and written one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "format/leq_writer.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/run/partial_run.h"
#include "ranks/communicator.h"

namespace leq {

struct WriteOptions {
  TensorPlanner plan;
  bool finished = false;               // blocks were quantized before and are in `blocks`
  const PartialRun* blocks = nullptr;  // the finished blocks; set on the leader
  int threads = 0;                     // 0 = one for each usable core
  Communicator* ranks = &one_rank();   // ranks that divide the tensors
};

struct QuantizeResult {
  std::uint64_t tensor_bytes = 0;
  double worst_error = 0;  // relative squared error of weights
  std::string worst_tensor;
  double worst_loss = 0;  // relative squared error of outputs on calibration text, if any
  std::string worst_loss_tensor;
};

// Holds at most one tensor in memory, or one block if it is finished already. With N ranks the
// leader, which has the only writer, holds 4 N tensors. `progress(done, total)` counts tensors.
// Throws Error naming a value that is not finite.
QuantizeResult write_tensors(LeqWriter* writer, std::span<const TensorInput> tensors,
                             const WriteOptions& options,
                             const std::function<void(std::int64_t, std::int64_t)>& progress);

}  // namespace leq
