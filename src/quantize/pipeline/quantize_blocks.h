// Quantizes the blocks of a model with what calibration tells of their inputs: one block's f32
// weights, its statistics and the hidden states of the windows are in memory, nothing else.
//
//   statistics once   (smoothquant, awq, rtn, zeroquant+, ...): one forward of the unquantized
//   block gathers
//                     the inputs of all its linears and moves the hidden states on
//   true-sequential   (gptq): q, k, v; then o with inputs recomputed after the quantized q, k, v;
//                     then gate and up; then down; hidden states move on through the quantized
//                     block (docs/quantization.md, gptq; Frantar et al. 2022)
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "comm/communicator.h"
#include "quantize/calibration/calibration_data.h"
#include "quantize/calibration/statistics.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/pipeline/block_source.h"
#include "quantize/pipeline/partial_run.h"
#include "quantize/rewrites/block_tensors.h"
#include "quantize/rewrites/fold_methods.h"

namespace leq {

// What a caller chooses beside types and methods.
struct RunOptions {
  std::optional<FoldMethod> fold = {};  // of a checkpoint: in place of its method's own
  BlockRewrites rewrites = {};          // of each block before all else
  std::vector<std::filesystem::path> load_stats = {};  // instead of a forward
  std::filesystem::path save_stats = {};
  bool true_sequential = true;  // with methods that want X^T X; never with saved or loaded
                                // statistics, nor where a method has teacher_inputs
  // Keys' means go into the file wherever there are statistics; this asks for them where nothing
  // else does.
  bool measure_keys = false;
  // b += (W - Wq) mean(x) where there is a bias; methods with adds_biases get those that lack.
  bool correct_bias = true;
  // act tensor: linears take a scale for each token where a fixed one makes the outputs of their
  // input err more than this many times as much; 0 = never.
  double max_static_error = 0;
  std::uint64_t max_ram = 0;  // bytes; 0 = no limit
  int threads = 0;            // 0 = one for each usable core
  // Goes on with an interrupted run that had the same model, text and settings; false: removes what
  // it finished.
  bool resume = true;
  // That divide the work among them: all make the same call, with the same checkpoint and the same
  // of all else; the leader writes what is written, and speaks.
  Communicator* ranks = &one_rank();
  // Asked often; true ends the run with an Error.
  std::function<bool()> stop = [] { return false; };
  // Lines for people; settings in them are marked, see spelled() in base/error.h.
  std::function<void(const std::string& line)> say = [](const auto&) {};
};

struct BlockOptions : RunOptions {
  TensorPlanner plan = {};
  CalibrationData data = {};
  std::filesystem::path partial = {};  // folder of finished blocks
  std::function<void(std::int64_t done, std::int64_t total)> progress = [](auto, auto) {};
};

// The configuration of the model as it is written: rewritten, and with the biases that are added.
ModelConfig written_config(const ModelConfig& config, const BlockOptions& options);

// Whether a linear is calibrated with what the quantized linears before it give.
bool runs_sequentially(const ModelConfig& config, const BlockOptions& options);

// Whether the blocks are to be rewritten or want statistics; without, write_tensors does.
bool wants_blocks(const ModelConfig& config, const BlockOptions& options);

struct BlocksResult {
  std::optional<PartialRun> partial;  // the leader's
  Json calibration;                   // [{"text", "text_sha256", "samples", "length", "seed"}, ...]
};

// Of a few rows of the first and the last block: tells checkpoints of one shape apart.
std::string weights_checksum(const ModelConfig& config, std::span<const TensorInput> tensors);

// All blocks of `config`, whose tensors are among `tensors`, into the partial run returned. Throws
// Error, and leaves the finished blocks for a run that resumes. Several ranks do not resume.
BlocksResult quantize_blocks(const ModelConfig& config, std::span<const TensorInput> tensors,
                             const BlockOptions& options);

}  // namespace leq
