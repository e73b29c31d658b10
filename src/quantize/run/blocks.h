// Quantizes the blocks of a model, one after another. Memory holds only one block's f32 weights,
// its statistics and the hidden states of the calibration windows.
//
//   statistics once   (smoothquant, awq, rtn, ...): one forward pass of the
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

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "format/leq_reader.h"
#include "quantize/run/quantize.h"
#include "quantize/run/quantize_tensor.h"

namespace leq {

// OUTPUT.partial: the finished blocks of a calibrated run, for resuming it after an interruption.

// A tensor of a block in the form in which files store it.
struct BlockTensor {
  std::string name;  // "layers.3.q"
  Shape shape;
  QuantizedTensor quantized;
};

// The treatment of an interrupted run.
enum class UnfinishedRun : std::uint8_t {
  resume,   // continue it
  replace,  // delete its blocks
  refuse,   // throw Error; for several ranks, which cannot resume
};

class PartialRun {
 public:
  using Report = std::function<void(const std::string& line)>;

  // Resumes the run in `folder` if there is one. Depending on `earlier`, deletes its blocks
  // instead, which is reported to `say`, or throws Error. `identity` contains everything that the
  // blocks depend on. Throws Error if the folder has finished blocks of another identity, or if its
  // run is still active.
  PartialRun(std::filesystem::path folder, const std::string& identity, UnfinishedRun earlier,
             const Report& say);
  ~PartialRun();  // removes the folder if it has no finished block
  PartialRun(PartialRun&&) noexcept = default;
  PartialRun& operator=(PartialRun&&) noexcept = default;

  const std::filesystem::path& folder() const { return work_.path(); }
  // Blocks 0 ... finished() - 1 are stored.
  std::int64_t finished() const { return finished_; }
  void save(const std::vector<BlockTensor>& block);  // as block number finished()
  // Reads a finished block and verifies its checksums.
  std::vector<BlockTensor> load(std::int64_t layer) const;
  // Called when an error ends the run: reports the folder of finished blocks, if there are any.
  void report_kept();
  // Called at the end: deletes all finished blocks. The destructor removes the folder.
  void remove();

 private:
  std::filesystem::path file_of(std::int64_t layer) const;

  bool holds_work() const;  // whether there are files other than the identity

  WorkFolder work_;
  Report report_;
  bool reported_ = false;  // report_kept() has reported
  std::int64_t finished_ = 0;
};

// The identity of a run: everything that the bytes of a file depend on, weights by some of their
// rows. `texts` describes the calibration text as calibration_json does, the tokenizer its tokens.
// options.plan must be set.
std::string run_identity(const ImportedModel& model, const QuantizeOptions& options,
                         const Json& texts);

// Number of calibration windows of the interrupted run in `folder` (OUTPUT.partial, OUTPUT.search);
// nullopt if there is none.
std::optional<std::int64_t> windows_of_interrupted_run(const std::filesystem::path& folder);

// The functions below read options.plan and options.fold, which must be set.

// Whether linears are calibrated on inputs that the quantized linears before them compute.
bool runs_sequentially(const ModelConfig& config, const QuantizeOptions& options);

// Whether blocks are rewritten or need statistics.
bool wants_calibration(const ModelConfig& config, const QuantizeOptions& options);

struct FinishedBlocks {
  std::optional<PartialRun> partial;  // set on the leader only
  Json calibration;                   // [calibration_json of the text]
};

// Calibrates and quantizes all blocks of the model into `folder` (OUTPUT.partial). Throws Error and
// keeps the finished blocks for resuming, which several ranks cannot do.
FinishedBlocks quantize_blocks(const ImportedModel& model, const QuantizeOptions& options,
                               const std::filesystem::path& folder);

}  // namespace leq
