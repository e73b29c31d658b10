// Quantizes the blocks of a model, one after another. Memory holds only one block's f32 weights,
// its statistics and the hidden states of the calibration windows.
//
//   no statistics     (absmax, zeroquant, ...): each linear is read and quantized
//   statistics once   (smoothquant, awq, rtn, zeroquant+, ...): one forward pass of the
//                     unquantized block gathers statistics of the inputs of all its linears
//                     and computes the hidden states for the next block
//   true-sequential   (gptq): q, k, v; then o with inputs recomputed after the quantized q, k, v;
//                     then gate and up; then down; the quantized block computes the hidden
//                     states for the next one (docs/quantization.md, gptq; Frantar et al. 2022)
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/json.h"
#include "quantize/run/partial_run.h"
#include "quantize/run/quantize.h"

namespace leq {

// The functions of this file read options.plan and options.fold, which must be set.

// The configuration of the written model, after rewrites and with added biases.
ModelConfig written_config(const ModelConfig& config, const QuantizeOptions& options);

// Whether linears are calibrated on inputs that the quantized linears before them compute.
bool runs_sequentially(const ModelConfig& config, const QuantizeOptions& options);

// Whether blocks are rewritten or need statistics.
bool wants_calibration(const ModelConfig& config, const QuantizeOptions& options);

// Checksum of a few rows of the first and the last block, to distinguish checkpoints of one shape.
std::string weights_checksum(const ModelConfig& config, std::span<const TensorInput> tensors);

struct FinishedBlocks {
  std::optional<PartialRun> partial;  // set on the leader only
  // [{"text", "text_sha256", "samples", "length", "seed"}]; empty without statistics.
  Json calibration;
};

// Quantizes all blocks of the model into `folder` (OUTPUT.partial). Throws Error and keeps the
// finished blocks for resuming, which several ranks cannot do; without calibration, throws Error if
// there are several ranks.
FinishedBlocks quantize_blocks(const ImportedModel& model, const QuantizeOptions& options,
                               const std::filesystem::path& folder);

}  // namespace leq
