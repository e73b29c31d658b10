#include "tools/quantize/options.h"

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "engine/engine.h"
#include "tools/common/options.h"

namespace leq {
namespace {

// Returns the text on which the search measures KL.
std::string search_text(const Options& options, const QuantizeOptions& checkpoint) {
  if (options.given("search-text")) return read_quantize_text(options.text("search-text"));
  if (!checkpoint.calibration.text.empty()) return checkpoint.calibration.text;
  return std::string(built_in_calibration_text());
}

// Scales that were searched for one bit width are not valid for another, so this is refused.
void require_shared_folds(const Options& options, const QuantizeOptions& checkpoint) {
  const bool searched = checkpoint.method == "smoothquant" && !options.given("smooth");
  const bool asked = options.given("smooth") && options.text("smooth") == "search";
  require(checkpoint.method != "awq" && !searched && !asked,
          "--search: folds that depend on the bits (awq, --smooth search) cannot be mixed; use "
          "--method gptq+ or rtn, or a fixed --smooth 0.5");
  // The inputs of GPTQ come from layers quantized at one width, so scales only fit that width.
  const bool gptq = checkpoint.method == "gptq" || checkpoint.method == "gptq+";
  require(!checkpoint.fold || !gptq || !checkpoint.true_sequential, "--search: with --smooth, ",
          checkpoint.method,
          " must not depend on the bits of the layers before; add --no-true-sequential");
}

// Returns the memory target of --fit: a run of leq-run with one sequence.
FitRequest fit_request(const Options& options, const ModelConfig& config) {
  require(!options.given("target-bpw") && !options.given("target-size"),
          "--fit is the target; leave out --target-bpw and --target-size");
  FitRequest fit;
  fit.bytes = parse_size("--fit", options.text("fit"));
  fit.limits.context = options.integer("ctx-size");
  fit.limits.output_tokens = 1 + kMaxDraftTokens;
  fit.limits = resolve_limits(fit.limits, config);
  if (options.given("max-kl")) fit.max_kl = options.real("max-kl");
  return fit;
}

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

Option text_row(std::string name, std::string value_name, std::string help) {
  return {.name = std::move(name),
          .kind = OptionKind::text,
          .value_name = std::move(value_name),
          .help = std::move(help)};
}

// `kind`: integer, real or integers.
Option number_row(OptionKind kind, std::string name, std::string value_name, std::string fallback,
                  std::string help, double minimum, double maximum = kNoLimit) {
  return {.name = std::move(name),
          .kind = kind,
          .value_name = std::move(value_name),
          .fallback = std::move(fallback),
          .help = std::move(help),
          .minimum = minimum,
          .maximum = maximum};
}

}  // namespace

std::string read_quantize_text(const std::string& path) {
  constexpr std::uint64_t kMaxTextBytes = 1ull << 30;
  std::string text = read_text_file(path, kMaxTextBytes);
  require(!text.empty(), path, ": the text is empty");
  const auto bad = first_invalid_utf8(text);
  require(!bad, path, ": no valid UTF-8 at byte ", bad.value_or(0));
  return text;
}

std::uint64_t parse_size(std::string_view flag, const std::string& text) {
  const auto bytes = parse_bytes(text);
  require(bytes && *bytes > 0, flag, " ", printable(text), ": expected a size like 8G or 500M");
  return *bytes;
}

std::vector<Option> search_flags() {
  Option context = number_row(OptionKind::integer, "ctx-size", "N", "0",
                              "with --fit: the context that must fit (default: the model's, at "
                              "most 8192)",
                              0, 16777216);
  context.spellings = "-c";
  return in_group(
      "Search for bits",
      {{.name = "search",
        .help = "choose 2, 3, 4 or 8 bits for each group of linears by measured KL divergence"},
       number_row(OptionKind::real, "target-bpw", "BITS", "",
                  "upper limit of the mean bits per searched weight, scales included", 2, 16),
       number_row(OptionKind::integer, "target-size", "BYTES", "",
                  "upper limit of the size of all tensors together, in bytes", 1),
       text_row("fit", "SIZE",
                "choose the types of weights and KV cache together so that running the model takes "
                "at most this much memory (8G, 500M); uses recipe auto if no recipe is given"),
       context,
       number_row(OptionKind::real, "max-kl", "NATS", "",
                  "with --fit: write no file if the best choice that fits has a larger KL "
                  "divergence from the checkpoint",
                  0, 100),
       number_row(OptionKind::real, "search-lambda", "NATS", "0.05",
                  "without a target: minimize the KL divergence plus N times the size relative to "
                  "16 bits",
                  0),
       number_row(OptionKind::integer, "search-evals", "N", "96", "number of KL measurements", 5,
                  1000000),
       text_row("search-text", "FILE",
                "text for the KL measurements of the search (default: the calibration text); use "
                "another text to evaluate the model"),
       text_row("search-log", "FILE",
                "keep the measurements in FILE; a later search of the same model continues with "
                "them")});
}

void require_no_search_flags(const Options& options) {
  for (const Option& flag : search_flags()) {
    require(!options.given(flag.name), "--", flag.name,
            " needs a search for bits: --search or --recipe auto");
  }
}

SearchedBits searched_bits(const Options& options, const QuantizeOptions& checkpoint,
                           const ModelConfig& config) {
  require(!options.given("type") && !options.given("bits") && !options.given("tensor-type"),
          "--search chooses the types; leave out --type, --bits and --tensor-type");
  require_shared_folds(options, checkpoint);
  SearchedBits bits;
  if (options.given("group")) bits.group = options.integer("group");
  MixedSearch& request = bits.search;
  request.text = search_text(options, checkpoint);
  request.threads = checkpoint.threads;
  request.options.lambda = options.real("search-lambda");
  request.options.evaluations = static_cast<int>(options.integer("search-evals"));
  if (options.given("search-log")) request.options.log = options.text("search-log");
  if (options.given("target-bpw")) request.target_bpw = options.real("target-bpw");
  if (options.given("target-size")) {
    request.target_size = static_cast<std::uint64_t>(options.integer("target-size"));
  }
  if (options.given("fit")) {
    request.fit = fit_request(options, config);
    return bits;
  }
  for (const char* flag : {"ctx-size", "max-kl"}) {
    require(!options.given(flag), "--", flag, " needs --fit");
  }
  request.target_four =
      options.given("recipe") && !options.given("target-bpw") && !options.given("target-size");
  return bits;
}

}  // namespace leq
