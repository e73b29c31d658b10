#include "tools/quantize/recipe.h"

#include <algorithm>
#include <array>
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "base/sha256.h"
#include "base/text.h"
#include "convert/hf_import.h"
#include "eval/measure_divergence.h"
#include "format/leq_copy.h"
#include "model/session.h"
#include "platform/make_backend.h"
#include "quantize/rewrites/fold_methods.h"
#include "tools/quantize/text.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kGateWindow = 512;
constexpr std::int64_t kGateWindows = 16;
// Narrow models have less to average over and large tables: finer groups in both.
constexpr std::int64_t kNarrow = 2048;
constexpr double kSharedAlpha = 0.5;

void apply_q8(CheckpointOptions& checkpoint, bool narrow) {
  checkpoint.method = "smoothquant";
  checkpoint.type = "int8";
  checkpoint.fold = smoothing_fold(std::nullopt);
  if (!narrow) return;
  checkpoint.overrides.insert(checkpoint.overrides.begin(),
                              {"^(token_embedding|head)$", require_scheme("int8-g32", "q8")});
}

void apply_four_bits(CheckpointOptions& checkpoint, bool narrow) {
  checkpoint.method = "gptq+";
  checkpoint.type = narrow ? "int4-g64" : "int4-g128";
}

void apply_q4(CheckpointOptions& checkpoint, bool narrow) {
  apply_four_bits(checkpoint, narrow);
  checkpoint.fold = smoothing_fold(std::nullopt);
}

void apply_zeroquant_w48(CheckpointOptions& checkpoint, bool) {
  checkpoint.method = "zeroquant";
  checkpoint.type = "int8-g128";
  checkpoint.act = ActChoice::row;
  checkpoint.overrides.insert(
      checkpoint.overrides.begin(),
      {R"(^layers\.[0-9]+\.(gate|up|down)$)", require_scheme("int4-g128", "zeroquant-w48")});
}

// Units of one width stand beside units of another: neither folds nor what was seen of the inputs
// may depend on the bits.
void apply_auto(CheckpointOptions& checkpoint, bool narrow) {
  apply_four_bits(checkpoint, narrow);
  checkpoint.fold = smoothing_fold(kSharedAlpha);
  checkpoint.true_sequential = false;
}

const std::array<Recipe, 4> kRecipes = {{
    {"q8", "int8 weights and inputs, SmoothQuant with the best alpha of each layer", 0.005,
     "--type int8-g128 or f16 loses less", apply_q8},
    {"q4", "4-bit weights by gptq+ behind SmoothQuant, groups of 128 (64 below a width of 2048)",
     0.05, "--recipe auto --target-bpw 5, or --recipe q8", apply_q4},
    {"zeroquant-w48", "no calibration: 8-bit attention and 4-bit gate, up and down, groups of 128",
     0.05, "--recipe q4, or --recipe q8", apply_zeroquant_w48},
    {"auto", "2, 3, 4 or 8 bits for each layer by measured KL, 4.25 a weight unless told", 0.05,
     "a larger --target-bpw, or --recipe q8", apply_auto, true},
}};

std::string recipe_names() {
  std::string names;
  for (const Recipe& recipe : kRecipes) names += (names.empty() ? "" : ", ") + recipe.name;
  return names;
}

RunLimits gate_limits(const ModelConfig& config, std::int64_t window) {
  RunLimits limits;
  limits.context = window;
  limits.output_tokens = kOutputRows;
  limits.key_type = limits.value_type = kExactKv;
  return resolve_limits(limits, config);
}

ProtocolSettings gate_protocol(std::int64_t tokens, std::int64_t context, const std::string& name) {
  ProtocolSettings settings;
  settings.join = Join::none;
  settings.window = std::min({kGateWindow, tokens, context});
  require(settings.window >= 16, name, ": ", tokens, " tokens are too few to judge by, give more");
  settings.stride = settings.window;
  settings.chunks = kGateWindows;
  return settings;
}

Json gate_json(const GateResult& gate, const GateText& text) {
  const DivergenceResult& result = gate.divergence;
  return {{"text", fs::path(text.name).filename().string()},
          {"text_sha256", sha256_hex(text.text)},
          {"window", gate.window},
          {"windows", result.windows},
          {"kl_mean", result.kl_mean.value},
          {"kl_mean_error", result.kl_mean.error},
          {"same_top1", result.same_top1.value},
          {"ppl", result.ppl.value},
          {"ppl_base", result.ppl_base.value}};
}

}  // namespace

const Recipe& require_recipe(std::string_view name) {
  const auto found = std::ranges::find(kRecipes, name, &Recipe::name);
  require(found != kRecipes.end(), "--recipe ", printable(name), ": expected one of ",
          recipe_names());
  return *found;
}

std::vector<Option> recipe_flags() {
  std::string help = "method, type and folds together: ";
  for (const Recipe& recipe : kRecipes) {
    help += (help.ends_with(": ") ? "" : "; ") + recipe.name + " (" + recipe.summary + ")";
  }
  std::vector<std::string> names;
  for (const Recipe& recipe : kRecipes) names.push_back(recipe.name);
  return {{.name = "recipe",
           .kind = OptionKind::text,
           .value_name = "NAME",
           .help = help,
           .group = "Quantization",
           .choices = names},
          {.name = "gate",
           .fallback = "auto",
           .help = "measure KL divergence from the unquantized model on held-out text at the end "
                   "(default: with --recipe and --smooth o3)",
           .group = "Quantization"},
          {.name = "heldout",
           .kind = OptionKind::text,
           .value_name = "FILE",
           .help = "text of the gate, not the calibration text; default: built-in, two pages",
           .group = "Quantization"}};
}

void apply_recipe(const Options& options, const fs::path& folder, CheckpointOptions& checkpoint) {
  const Recipe& recipe = require_recipe(options.text("recipe"));
  for (const char* flag : {"method", "type", "bits", "act", "smooth", "search"}) {
    require(!options.given(flag), "--recipe ", recipe.name, " and --", flag,
            " say the same things; leave one of them out");
  }
  recipe.apply(checkpoint, import_hf_config(folder).width < kNarrow);
}

GateText gate_text(const Options& options) {
  if (!options.given("heldout")) return {std::string(built_in_heldout_text()), "built-in text"};
  return {read_quantize_text(options.text("heldout")), options.text("heldout")};
}

GateResult run_gate(const GateText& text, const fs::path& base_file, const fs::path& output,
                    const CheckpointOptions& checkpoint,
                    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  GateResult gate;
  gate.text = text.name;
  {
    const auto backend = make_backend({.device = "cpu", .threads = checkpoint.threads});
    ThreadPool pool(checkpoint.threads);
    const Model base(base_file, {.mode = LoadMode::map});
    const Model model(output, {.mode = LoadMode::map});
    const std::vector<Token> tokens = encode_text(model.tokenizer(), text.text);
    const ProtocolSettings settings =
        gate_protocol(std::ssize(tokens), model.config().context, text.name);
    const std::vector<Window> windows = plan_windows(settings, std::ssize(tokens));
    Session base_session(base, *backend, gate_limits(base.config(), settings.window));
    Session session(model, *backend, gate_limits(model.config(), settings.window));
    PerplexityRun run = {.tokens = tokens, .windows = windows};
    run.progress = [&](std::int64_t done, double) {
      require(!checkpoint.stop(), "interrupted; ", output.string(),
              " is complete, without its gate");
      progress(done, std::ssize(windows));
    };
    gate.divergence =
        measure_divergence(base_session, session, pool, run).summarize(settings.protocol);
    gate.window = settings.window;
  }
  const LeqReader written(output, {.mode = LoadMode::map});
  write_copy(
      output, written, [&](const std::string&) -> const LeqReader& { return written; },
      [&](Json& metadata) { metadata["provenance"]["gate"] = gate_json(gate, text); });
  return gate;
}

std::string gate_report(const GateResult& gate, const Recipe* recipe) {
  const DivergenceResult& result = gate.divergence;
  std::string line = "gate        KL " + fixed(result.kl_mean.value, 5) + " +- " +
                     fixed(result.kl_mean.error, 5) + " nats, same first choice " +
                     fixed(100 * result.same_top1.value, 1) + " %, perplexity " +
                     fixed(result.ppl.value, 3) + " (unquantized " +
                     fixed(result.ppl_base.value, 3) + "), " + std::to_string(result.windows) +
                     " windows of " + std::to_string(gate.window) + " tokens of " + gate.text;
  if (recipe == nullptr) return line + '\n';
  const bool passed = result.kl_mean.value <= recipe->kl_limit;
  line += "\n            limit of " + recipe->name + ": " + fixed(recipe->kl_limit, 3) + " nats, ";
  return line + (passed ? "passed\n" : "not passed: try " + recipe->advice + '\n');
}

}  // namespace leq
