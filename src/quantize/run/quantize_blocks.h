// Quantizes the blocks of a model with calibrated input statistics. Memory holds only one block's
// f32 weights, its statistics and the hidden states of the windows.
//
//   statistics once   (smoothquant, awq, rtn, zeroquant+, ...): one forward pass of the
//                     unquantized block gathers statistics of the inputs of all its linears
//                     and computes the hidden states for the next block
//   true-sequential   (gptq): q, k, v; then o with inputs recomputed after the quantized q, k, v;
//                     then gate and up; then down; the quantized block computes the hidden
//                     states for the next one (docs/quantization.md, gptq; Frantar et al. 2022)
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "quantize/calibration/calibration_data.h"
#include "quantize/calibration/statistics.h"
#include "quantize/methods/tensor_plan.h"
#include "quantize/run/block_run.h"
#include "quantize/run/partial_run.h"
#include "quantize/rewrites/fold.h"
#include "ranks/communicator.h"

namespace leq {

// Options other than types and methods.
struct RunOptions {
  std::optional<FoldMethod> fold = {};    // replaces the fold that the method has
  bool fold_attention_biases = false;     // in each block first; see rewrites/fold.h
  std::filesystem::path load_stats = {};  // file to read instead of a forward pass
  std::filesystem::path save_stats = {};
  bool true_sequential = true;  // for methods that use X^T X, except with statistics files
  // Whether the statistics of k's inputs are gathered even if no method, fold or input format needs
  // them, so that the mean of keys (kKeyMean in model/weights.h) is stored. It is also stored if
  // these statistics exist for another reason.
  bool measure_keys = false;
  // Corrects biases, b += (W - Wq) mean(x); methods with adds_biases also add missing biases.
  bool correct_bias = true;
  // For act tensor: a linear gets a scale for each token if a fixed scale causes more than this
  // many times the output error of scales per token; 0 = never.
  double max_static_error = 0;
  std::uint64_t max_ram = 0;  // limit in bytes; 0 = no limit
  int threads = 0;            // 0 = one for each usable core
  // Resumes an interrupted run with the same model, text and settings; false: deletes its finished
  // blocks.
  bool resume = true;
  // The ranks that divide the work. All make the same call with the same checkpoint and options;
  // only the leader writes files and reports.
  Communicator* ranks = &one_rank();
  // Polled often; ends the run with an Error when it returns true.
  std::function<bool()> stop = [] { return false; };
  // Receives messages for the user, in which settings are marked; see spelled() in base/error.h.
  std::function<void(const std::string& line)> say = [](const auto&) {};
};

struct BlockOptions : RunOptions {
  TensorPlanner plan = {};
  CalibrationData data = {};
  std::filesystem::path partial = {};  // folder of finished blocks, if there is one
  std::function<void(std::int64_t done, std::int64_t total)> progress = [](auto, auto) {};
};

// The configuration of the written model, after rewrites and with added biases.
ModelConfig written_config(const ModelConfig& config, const BlockOptions& options);

// Whether linears are calibrated on inputs that the quantized linears before them compute.
bool runs_sequentially(const ModelConfig& config, const BlockOptions& options);

// Whether blocks are rewritten or need statistics; otherwise write_tensors quantizes them.
bool wants_blocks(const ModelConfig& config, const BlockOptions& options);

struct BlocksResult {
  std::optional<PartialRun> partial;  // set on the leader only
  Json calibration;                   // [{"text", "text_sha256", "samples", "length", "seed"}, ...]
};

// Checksum of a few rows of the first and the last block, to distinguish checkpoints of one shape.
std::string weights_checksum(const ModelConfig& config, std::span<const TensorInput> tensors);

// Quantizes all blocks of `config`, whose tensors are among `tensors`. Returns them as a partial
// run. Throws Error and keeps the finished blocks for resuming; several ranks cannot resume.
BlocksResult quantize_blocks(const ModelConfig& config, std::span<const TensorInput> tensors,
                             const BlockOptions& options);

// The same without calibration, for runs that should be able to resume too: write_tensors alone
// begins anew. Needs the space of the blocks beside that of the file. Throws Error where there are
// several ranks.
PartialRun quantize_blocks_plainly(const ModelConfig& config, std::span<const TensorInput> tensors,
                                   const BlockOptions& options);

}  // namespace leq
