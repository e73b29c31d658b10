// Quantizing a model: from a checkpoint to a .leq file, with settings by name (recipes), a search
// for bits and a measurement of the loss (gate) where these are asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "convert/imported_model.h"
#include "eval/divergence.h"
#include "eval/mixed_search.h"
#include "quantize/calibration/calibration.h"
#include "quantize/methods/method.h"
#include "quantize/rewrites/fold.h"
#include "ranks/communicator.h"

namespace leq {

struct Recipe;

// The evaluation text of a gate; it must differ from the calibration text.
struct GateText {
  std::string text;
  std::string name;  // shown to users
};
GateText built_in_gate_text();

// Quality loss of a file: its KL divergence from the unquantized model on a gate's text.
struct GateResult {
  DivergenceResult divergence;
  std::string text;  // name of the text, shown to users
  std::int64_t window = 0;
  std::optional<KvEvidence> cache = {};  // the file's KV cache types, with which it was measured
};

struct SearchedBits {
  // The candidates, the base and (if it is not set) the log are set when the search starts.
  MixedSearch search;
  // Columns that share a scale below 8 bits; 0: 64 in narrow models, else 128.
  std::int64_t group = 0;
};

struct QuantizeResult {
  std::string description;  // describes the source, for users
  std::uint64_t file_bytes = 0;
  std::int64_t parameters = 0;
  double bits_per_weight = 0;  // all tensor bytes x 8 / parameters
  double worst_error = 0;      // largest relative squared error of a tensor's weights
  std::string worst_tensor;
  double worst_loss = 0;  // the same error of a tensor's outputs on the calibration text, if any
  std::string worst_loss_tensor;
  std::optional<MixedSearchResult> search = {};  // instead of bits and errors
  std::optional<GateResult> gate = {};
};

struct QuantizeOptions {
  std::string type = "int8";  // name of a scheme
  ActChoice act = ActChoice::automatic;
  std::string method = "absmax";  // one of checkpoint_methods()
  std::vector<TypeOverride> overrides = {};
  TensorPlanner plan = {};  // if set, replaces the plan of the four settings above
  // Replaces the types of block linears, except those that folds are chosen for: candidates of a
  // search share their folds.
  std::optional<QuantScheme> block_type = {};
  TensorPlanner fold_plan = {};         // set with `plan`: the types that folds are chosen for
  std::optional<FoldMethod> fold = {};  // replaces the fold that the method has
  bool keeps_types = false;             // quantize_checkpoint calls keep_types
  bool outline = false;                 // weights are not read: the file is a LeqWriter's outline
  // For act tensor: a linear gets a scale for each token if a fixed scale causes more than this
  // many times the output error of scales per token; 0 = never.
  double max_static_error = 0;
  std::optional<SearchedBits> search = {};  // finds the type of each unit
  const Recipe* recipe = nullptr;           // its limit is used for the gate

  CalibrationRequest calibration = {};
  bool true_sequential = true;  // for methods that use X^T X
  // Whether the statistics of k's inputs are gathered even if no method, fold or input format needs
  // them, so that the mean of keys (kKeyMean in model/weights.h) is stored. It is also stored if
  // these statistics exist for another reason.
  bool measure_keys = false;
  // Derives calibration.samples and the number of gate windows from measured speed.
  bool fit_windows = false;
  // With fit_windows: time limit in seconds for calibration and the choice of folds and codes. If
  // absent, the calibration alone is limited to kCalibrationSeconds.
  std::optional<double> seconds = {};

  bool measure = false;  // runs the gate and stores its result in the file
  GateText gate_text = {};

  int threads = 0;            // 0 = one for each usable core
  std::uint64_t max_ram = 0;  // limit of calibration in bytes; 0 = no limit
  // Resumes an interrupted run with the same model, text and settings; false: deletes its finished
  // blocks.
  bool resume = true;
  bool fix_mistral_regex = false;     // see fix_mistral_pattern in convert/hf_tokenizer.h
  ArrivingFiles* arriving = nullptr;  // see import_checkpoint
  std::vector<std::filesystem::path> texts = {};  // input files that must not be overwritten
  // The ranks that divide the work. All make the same call with the same checkpoint and options;
  // only the leader writes files, measures and reports.
  Communicator* ranks = &one_rank();
  // Polled often; ends the run with an Error when it returns true.
  std::function<bool()> stop = [] { return false; };
  // Receives messages for the user, in which settings are marked; see spelled() in base/error.h.
  std::function<void(const std::string& line)> say = [](const auto&) {};
  // `work` is "quantize", "candidates", "search" or "gate"; `note` may be empty.
  std::function<void(std::string_view work, std::int64_t done, std::int64_t total,
                     const std::string& note)>
      progress = [](auto, auto, auto, const auto&) {};
  // Called when the file is complete, before it is measured.
  std::function<void(const QuantizeResult&)> written = [](const auto&) {};
};

// A value of QuantizeOptions::method: the rounding method, and the type that is its default.
struct CheckpointMethod {
  std::string name;
  std::string summary;
  std::string type;
};
std::vector<CheckpointMethod> checkpoint_methods();

// Cost of choosing folds and codes, without the forward passes of calibration: multiply-adds (and
// other work as an equivalent number) for each weight [N][K], fitted to measured times.
struct ChoosingWork {
  double squares = 0;           // factor on N K^2
  double searched_squares = 0;  // factor on min(N, searched_rows) K^2
  double searched_tokens = 0;   // factor on min(N, searched_rows) K
  std::int64_t searched_rows = 0;
};

struct RecipeTypes {
  const char* type = nullptr;
  std::vector<std::pair<const char*, const char*>> overrides = {};  // pattern and type; a later
                                                                    // one takes precedence
  ActChoice act = ActChoice::automatic;
};

// Named, tested settings. Each has a gate: the limit of the KL divergence from the unquantized
// model that it is expected to meet.
struct Recipe {
  std::string name;
  std::string summary;
  double kl_limit = 0;  // limit of the gate in nats
  std::string advice;   // shown if the gate is not passed
  const char* method = nullptr;
  FoldMethod (*fold)() = nullptr;
  // In narrow models (kNarrowWidth) errors average out less and tables are large.
  RecipeTypes wide, narrow;
  // Whether the bit width of each unit is searched for. 4 bits are then the types above, and folds
  // are those of these types.
  bool searches = false;
  // Calibration uses as many windows as fit into minutes, at most this number; 0: as many as asked
  // for.
  std::int64_t most_windows = 0;
  ChoosingWork work = {};  // for the estimate of the time

  bool fits_windows() const { return most_windows > 0; }
};

inline constexpr std::string_view kDefaultRecipe = "q8";

std::span<const Recipe> recipes();
// Returns null if there is no such recipe.
const Recipe* find_recipe(std::string_view name);
// Throws Error listing the names if there is no such recipe.
const Recipe& require_recipe(std::string_view name);
// Sets recipe, method, type and folds for a checkpoint with this configuration.
void apply_recipe(const Recipe& recipe, const ModelConfig& config, QuantizeOptions& options);

// Sets type and overrides to kept_types (convert/import.h). Throws Error if `options` name a
// method, a rewrite or statistics, because these would change the codes.
void keep_types(const ImportedModel& model, QuantizeOptions& options);

// Throws Error if there are several ranks and the run can only use one.
void require_divisible(const QuantizeOptions& options, int ranks);

// Converts a checkpoint (import_checkpoint) and writes `output` atomically. A run with calibration
// stores its finished blocks in OUTPUT.partial until then, a search its candidates in
// OUTPUT.search, and a measurement the unquantized model in a file without a name, in the folder
// OUTPUT.base. Messages about calibration and gate, and why the gate is left out, are passed to
// options.say. Throws Error if a setting contradicts the checkpoint, before any weight is read; if
// a file cannot be written, is named twice or would replace an input; if max_ram is too small; and
// if options.stop returns true. After a call of `written` the file is complete, whatever is thrown.
QuantizeResult quantize_checkpoint(const std::filesystem::path& checkpoint,
                                   const std::filesystem::path& output,
                                   const QuantizeOptions& options);
// The part of quantize_checkpoint that writes the file, with types, windows and bits that are
// settled: ignores keeps_types, fit_windows, search, measure and the files of `texts`.
QuantizeResult quantize_imported(const ImportedModel& model, const std::filesystem::path& output,
                                 const QuantizeOptions& options);

// The identity by which an interrupted run with these options is resumed (run_identity in
// blocks.h); it includes the calibration request and the tokenizer.
std::string checkpoint_identity(const ImportedModel& model, const QuantizeOptions& options);

// The minimum size in bytes of all tensors in a file with these options, and that of the linears in
// blocks alone.
struct LeastBytes {
  std::uint64_t all = 0;
  std::uint64_t block_linears = 0;
};
LeastBytes least_bytes(const ImportedModel& model, const QuantizeOptions& options);
// An estimate of the time on one core for reading and rounding all tensors, without calibration.
double rounding_seconds(const ImportedModel& model, const QuantizeOptions& options);

// Converts a GGUF file to .leq without changing its quantized values: into a cache folder, where
// the result is reused, or into memory.
struct ConversionEvents {
  // Called before a conversion, but not if the cache already has the file, with the size of the
  // file that is made and rounding_seconds.
  std::function<void(std::uint64_t bytes, double core_seconds)> begin = [](auto, auto) {};
  // Called when `done` of `total` tensors have been converted.
  std::function<void(std::int64_t done, std::int64_t total)> progress = [](auto, auto) {};
  std::function<bool()> stop = [] { return false; };  // true aborts with ErrorKind::interrupted
  std::function<void(const std::string& note)> say = [](const auto&) {};  // the import's notes
};

// $XDG_CACHE_HOME/leq, otherwise ~/.cache/leq. Throws Error if neither variable is set.
std::filesystem::path conversion_cache();
// The path of a GGUF file's conversion in `cache`, whether it is there or not.
std::filesystem::path conversion_of(const std::filesystem::path& gguf,
                                    const std::filesystem::path& cache);
// The path of the conversion in `cache`, whose name differs for each version of the file and of
// leq; if it is not cached yet, it is created atomically. Throws Error like import_gguf, and if the
// cache cannot be written.
std::filesystem::path convert_in_cache(const std::filesystem::path& gguf,
                                       const std::filesystem::path& cache,
                                       const ConversionEvents& events);
// Converts into an unnamed in-memory file, which is freed with the returned object.
NamelessFile convert_in_memory(const std::filesystem::path& gguf, const ConversionEvents& events);
// The outline of the file that a GGUF file or a quantized checkpoint is converted to, or another
// checkpoint is quantized to with `type`, made of its headers in memory.
NamelessFile outline_of(const std::filesystem::path& checkpoint, const std::string& type);

}  // namespace leq
