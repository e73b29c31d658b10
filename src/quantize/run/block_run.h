// Forward passes of single unquantized blocks over the calibration windows, which gather the
// statistics of the linears' inputs, and the memory of such a run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/layout.h"
#include "base/thread_pool.h"
#include "cache/kv_cache.h"
#include "cache/sequence_state.h"
#include "model/linear_sites.h"
#include "model/model_config.h"
#include "model/transformer.h"
#include "quantize/calibration/calibration.h"
#include "quantize/methods/method.h"
#include "quantize/rewrites/fold.h"
#include "ranks/communicator.h"

namespace leq {

// Calibration identifies the inputs of a layer's linears by their index in linear_sites.

// The quantized linears that read the site's input: {"q", "k", "v"}.
std::vector<std::string> parts_of(const LinearSite& site);
// Index of the site that contains a linear of the layer: 0 for "k". Throws Error if there is none.
std::size_t site_of(std::span<const LinearSite> sites, std::string_view part);
// Groups of sites that share a block of inputs, which are available together, in order.
std::vector<std::vector<std::size_t>> stages_of(std::span<const LinearSite> sites);
// Indices of all `sites`: 0, 1, ...
std::vector<std::size_t> all_sites(std::span<const LinearSite> sites);

// The unquantized blocks of a checkpoint, and the hidden states that are the input of the first
// block.

// A matrix of zeros with the shape of a tensor.
Matrix matrix_of(const Shape& shape);

class BlockSource {
 public:
  // `config` and `tensors` are those of the checkpoint and must outlive the source.
  BlockSource(const ModelConfig& config, std::span<const TensorInput> tensors);

  BlockTensors load(std::int64_t layer) const;
  // Rows of a tensor outside the layers.
  void read(std::string_view name, std::int64_t row, std::int64_t rows, std::span<float> out) const;
  std::int64_t columns(std::string_view name) const;
  // Computes the embeddings of the first hidden.windows() windows from the unquantized tables.
  void embed(const CalibrationData& data, HiddenStates& hidden) const;

 private:
  const ModelConfig& config_;
  std::map<std::string, const TensorInput*, std::less<>> tensors_;
};

// Runs one block of a model on stored hidden states, with the f32 weights of BlockTensors. It uses
// the engine's own forward pass on a model with one block.
class BlockRun {
 public:
  // For sequences of at most `length` tokens. `block` and `backend` must outlive the run. Between
  // calls the values of the block's tensors may change, but not their sizes. `source`, which must
  // outlive it too: for a layer that reads another's keys or an input of its own. Throws Error
  // naming a tensor of the block that is missing or has a wrong shape.
  BlockRun(const ModelConfig& config, std::int64_t layer, const BlockTensors& block,
           Backend& backend, std::int64_t length, const BlockSource* source = nullptr);
  BlockRun(const BlockRun&) = delete;
  BlockRun& operator=(const BlockRun&) = delete;

  // Runs one sublayer in place on the hidden states [T][W] of a sequence. Returns false if the
  // observer stopped it; the states are then unchanged.
  bool run(Sublayer which, std::span<float> hidden, Observer* observer);
  // Before the sublayers of a window: its tokens, for the layer's own input, and the states that
  // entered the layer whose keys it reads.
  void start(std::span<const Token> tokens, const HiddenStates* owner, std::int64_t window);

  std::int64_t layer() const { return layer_; }
  const ModelConfig& config() const { return config_; }
  const std::vector<LinearSite>& sites() const { return sites_; }  // sites of the layer
  std::int64_t tokens_of(std::size_t numbers) const {
    return static_cast<std::int64_t>(numbers) / config_.width;
  }

  // Upper bound of the bytes that the constructor allocates from the backend.
  static std::uint64_t bytes(const ModelConfig& config, std::int64_t layer, const Layout& layout,
                             std::int64_t length);

 private:
  Weights bind(const BlockTensors& block, std::int64_t owner, Backend& backend);
  void add(std::int64_t place, const BlockTensors& block);

  std::map<std::string, StoredTensor, std::less<>> tensors_;
  // Zeros, which all tensors outside the block share; for a layer with its own input the rows of
  // the token embedding for the window's tokens.
  std::vector<float> zeros_;
  std::vector<float> rows_, projection_, projection_norm_;  // of the layer's own input
  std::vector<float> owner_hidden_;
  BlockTensors owner_;  // the layer whose keys it reads
  ModelConfig config_;  // configuration with one block and one position
  std::int64_t layer_;
  const BlockSource* source_;
  std::vector<LinearSite> sites_;
  Weights weights_;
  KvCache cache_;
  std::unique_ptr<FixedStates> states_;  // null if the block has none
  Transformer transformer_;
};

// Runs all calibration windows through one block and gathers statistics of its linears' inputs.

inline constexpr int kSampleTokens = 512;  // number of input rows that calibration keeps

// The part of a sublayer that a pass runs.
enum class Extent : std::uint8_t {
  none,
  inputs,  // runs up to the last linear whose inputs are needed
  whole,
};

struct Pass {
  Extent mixer = Extent::whole;
  Extent mlp = Extent::whole;
  std::vector<std::size_t> sites = {};  // sites whose inputs are gathered
  StatisticsWanted wanted = {};
  bool keep = true;  // store the outputs of complete sublayers as the hidden states
};

using SiteStatistics = std::map<std::size_t, InputStatistics>;  // by site

// What layers read beside the residual stream, in models whose layers do not run alone.
class BlockInputs {
 public:
  // Both must outlive the inputs. Kept states are in memory if `file` is empty (HiddenStates).
  BlockInputs(const ModelConfig& config, const CalibrationData& data, std::filesystem::path file);

  // Before a layer is run: keeps its states if later layers read its keys.
  void keep(std::int64_t layer, const HiddenStates& hidden);
  void start(BlockRun& run, std::int64_t window) const;

 private:
  const ModelConfig& config_;
  const CalibrationData& data_;
  std::filesystem::path file_;
  std::map<std::int64_t, std::unique_ptr<HiddenStates>> owners_;
};

struct PassContext {
  BlockRun& run;
  HiddenStates& hidden;
  Backend& backend;
  ThreadPool& pool;
  std::string block;                        // "layers.3", for error messages
  std::function<void()> on_window = [] {};  // called after each window; may throw to end the pass
  // The ranks that divide the windows. All run the same passes, and all receive all statistics.
  Communicator& ranks = one_rank();
  const BlockInputs* inputs = nullptr;  // may be null if layers read the residual stream alone
};

SiteStatistics run_pass(const PassContext& context, const Pass& pass);

// Memory of a calibrated run, planned before the run starts.

// Describes which data a run holds at the same time.
struct CalibrationShape {
  std::int64_t windows = 0;
  std::int64_t length = 0;        // tokens per window
  bool together = true;           // statistics of all inputs of a block are held together
  bool hessian_together = false;  // X^T X of all inputs are held together
  bool hessian_of_one = false;    // X^T X of one input at a time is held to solve with it
  std::int64_t sample_tokens = 0;
};

struct CalibrationMemory {
  std::uint64_t block = 0;       // f32 weights of one block
  std::uint64_t forward = 0;     // activations, keys and values of one window
  std::uint64_t statistics = 0;  // statistics gathered together, with X^T X
  std::uint64_t method = 0;      // scratch for choosing codes of the largest linear
  std::uint64_t hidden = 0;      // hidden states of all windows; 0 if on disk
  std::uint64_t hidden_on_disk = 0;
  std::uint64_t total() const { return block + forward + statistics + method + hidden; }
};

// Plans a run within `limit` bytes (0 = no limit). Hidden states are stored on disk if they do not
// fit into memory. Throws Error with all sizes if the rest does not fit either.
CalibrationMemory plan_calibration(const ModelConfig& config, const CalibrationShape& shape,
                                   const Layout& layout, std::uint64_t limit);

// A text such as "block 810 MB, forward ..., 7.1 GB in all".
std::string describe(const CalibrationMemory& memory);

}  // namespace leq
