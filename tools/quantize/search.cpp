#include "tools/quantize/search.h"

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/text.h"
#include "convert/hf_import.h"
#include "quantize/pipeline/partial_run.h"
#include "quantize/pipeline/quantize_blocks.h"
#include "tools/quantize/text.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr double kRecipeBits = 4.25;           // a weight of --recipe auto
constexpr std::int64_t kManyEvaluations = 64;  // worth a learned policy

// The text that KL is measured on.
std::string search_text(const Options& options, const CheckpointOptions& checkpoint) {
  if (options.given("search-text")) return read_quantize_text(options.text("search-text"));
  if (!checkpoint.calibration.text.empty()) return checkpoint.calibration.text;
  return std::string(built_in_calibration_text());
}

// Scales that were found for one width cannot serve another.
void require_shared_folds(const Options& options, const CheckpointOptions& checkpoint) {
  const bool searched = checkpoint.method == "smoothquant" && !options.given("smooth");
  const bool asked = options.given("smooth") && options.text("smooth") == "search";
  require(checkpoint.method != "awq" && !searched && !asked,
          "--search: folds that depend on the bits (awq, --smooth search) cannot be mixed; use "
          "--method gptq+ or rtn, or a fixed --smooth 0.5");
  // Behind layers that were quantized at one width the inputs, and so the scales, are that width's.
  const bool gptq = checkpoint.method == "gptq" || checkpoint.method == "gptq+";
  require(
      !checkpoint.fold || !gptq || !checkpoint.true_sequential || !checkpoint.load_stats.empty(),
      "--search: with --smooth, ", checkpoint.method,
      " must not depend on the bits of the layers before; add --no-true-sequential");
}

// All that the candidates depend on, but for their bits.
std::string candidate_identity(const fs::path& folder, const CheckpointOptions& options,
                               std::int64_t group) {
  const ImportedModel model = import_hf(folder);
  const auto& [damping, act_order, descent_passes, refit_scales] = options.method_options;
  Json statistics = Json::array();
  for (const fs::path& path : options.load_stats) statistics.push_back(path.string());
  const CalibrationRequest& text = options.calibration;
  return Json({{"weights", weights_checksum(model.config, model.tensors)},
               {"method", options.method},
               {"method_options", {damping, act_order, descent_passes, refit_scales}},
               {"act", act_choice_name(options.act)},
               {"group", group},
               {"fold", options.fold ? options.fold->name : ""},
               {"rotation_seed", options.rewrites.rotation_seed.value_or(0)},
               {"rotated", options.rewrites.rotation_seed.has_value()},
               {"fold_attention_biases", options.rewrites.fold_attention_biases},
               {"text", {sha256_hex(text.text), text.samples, text.length, text.seed}},
               {"load_stats", std::move(statistics)},
               {"true_sequential", options.true_sequential},
               {"correct_bias", options.correct_bias}})
      .dump();
}

// A finished file is used again where the run is resumed.
void make_file(const fs::path& folder, const fs::path& path, const CheckpointOptions& options,
               const std::function<void(std::int64_t, std::int64_t)>& progress) {
  if (options.resume && fs::exists(path)) return;
  quantize_checkpoint(folder, path, options, progress);
}

}  // namespace

std::vector<Option> search_flags() {
  const std::string group = "Search for bits";
  return {{.name = "search",
           .kind = OptionKind::text,
           .value_name = "HOW",
           .help = "2, 3, 4 or 8 bits for each unit, by measured KL divergence",
           .group = group,
           .choices = {"grid", "entropy", "greedy", "sens", "learned"}},
          {.name = "target-bpw",
           .kind = OptionKind::real,
           .value_name = "BITS",
           .help = "the searched weights take at most so many bits each, scales included",
           .group = group,
           .minimum = 2,
           .maximum = 16},
          {.name = "target-size",
           .kind = OptionKind::integer,
           .value_name = "BYTES",
           .help = "all tensors take at most so many bytes",
           .group = group,
           .minimum = 1},
          {.name = "search-lambda",
           .kind = OptionKind::real,
           .value_name = "NATS",
           .fallback = "0.05",
           .help = "without a target: price of the whole 16-bit size",
           .group = group,
           .minimum = 0},
          {.name = "search-evals",
           .kind = OptionKind::integer,
           .value_name = "N",
           .fallback = "96",
           .help = "measurements of KL",
           .group = group,
           .minimum = 5,
           .maximum = 1000000},
          {.name = "search-text",
           .kind = OptionKind::text,
           .value_name = "FILE",
           .help = "text to measure on (default: the calibration text); not the one that the "
                   "model is judged by",
           .group = group},
          {.name = "search-log",
           .kind = OptionKind::text,
           .value_name = "FILE",
           .help = "keep the measurements there; a later search of the same model goes on with "
                   "them",
           .group = group}};
}

void require_no_search_flags(const Options& options) {
  for (const Option& flag : search_flags()) {
    require(!options.given(flag.name), "--", flag.name,
            " needs a search for bits: --search or --recipe auto");
  }
}

MixedSearch search_request(const Options& options, const CheckpointOptions& checkpoint) {
  require(!options.given("type") && !options.given("bits") && !options.given("tensor-type"),
          "--search chooses the types; leave out --type, --bits and --tensor-type");
  require_shared_folds(options, checkpoint);
  require(checkpoint.rotation_seeds == 1,
          "--search: --hadamard-seeds may choose another rotation for each width; name one by "
          "--seed");
  MixedSearch request;
  request.text = search_text(options, checkpoint);
  request.threads = checkpoint.threads;
  const bool many =
      options.given("search-evals") && options.integer("search-evals") > kManyEvaluations;
  request.options.strategy = parse_search_strategy(options.given("search") ? options.text("search")
                                                   : many                  ? "learned"
                                                                           : "sens");
  request.options.lambda = options.real("search-lambda");
  request.options.evaluations = static_cast<int>(options.integer("search-evals"));
  request.options.seed = static_cast<std::uint64_t>(options.integer("seed"));
  if (options.given("search-log")) request.options.log = options.text("search-log");
  if (options.given("target-bpw")) request.target_bpw = options.real("target-bpw");
  if (options.given("target-size")) {
    request.target_size = static_cast<std::uint64_t>(options.integer("target-size"));
  }
  if (options.given("recipe") && !options.given("target-bpw") && !options.given("target-size")) {
    request.target_bpw = kRecipeBits;
  }
  return request;
}

MixedSearchResult quantize_by_search(
    const fs::path& folder, const fs::path& output, const CheckpointOptions& checkpoint,
    MixedSearch request, std::int64_t group,
    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  fs::path work = output;
  work += ".search";
  PartialRun kept(work, candidate_identity(folder, checkpoint, group), checkpoint.resume);
  std::int64_t file = 0;
  const auto share = [&](std::int64_t done, std::int64_t total) {
    progress(file * total + done, kChoices * total);
  };
  request.base_file = work / "base.kl";
  for (std::size_t c = 0; c < kChoices; ++c) {
    CheckpointOptions candidate = checkpoint;
    candidate.type = "int" + std::to_string(kSearchBits[c]);
    if (c != kEightBits) candidate.type += "-g" + std::to_string(group);
    request.candidates[c] = work / (candidate.type + ".leq");
    make_file(folder, request.candidates[c], candidate, share);
    ++file;
  }
  if (request.options.log.empty()) request.options.log = work / "log.json";
  const auto report = request.options.progress;
  request.options.progress = [&](int done, double best) {
    require(!checkpoint.stop(), "interrupted; go on with --resume");
    if (report) report(done, best);
  };
  MixedSearchResult result = search_mixed_model(request, output);
  kept.remove();
  return result;
}

}  // namespace leq
