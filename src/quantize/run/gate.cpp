#include "quantize/run/steps.h"

#include <algorithm>

#include "backend/cpu/workers.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "eval/divergence.h"
#include "format/leq_writer.h"
#include "format/loaded_file.h"
#include "model/session.h"
#include "tensor/quant_scheme.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kGateWindow = 512;
constexpr std::string_view kBuiltIn = "built-in text";
// Upper bound of the KL on WikiText-2's test split divided by that on the built-in text. 1.04 was
// measured for SmolLM2-135M with recipe q4. If the text had only tales, it would be about 2.
constexpr double kOtherTexts = 1.5;

RunLimits gate_limits(const Model& model, std::int64_t window) {
  RunLimits limits;
  limits.context = window;
  limits.output_tokens = kOutputRows;
  limits.key_type = limits.value_type = kExactKv;
  if (const auto& cache = model.kv_evidence()) {
    limits.key_type = cache->key_type;
    limits.value_type = cache->value_type;
  }
  return resolve_limits(limits, model.config());
}

Json gate_json(const GateResult& gate, const GateText& text) {
  const DivergenceResult& result = gate.divergence;
  Json json = {{"text", fs::path(text.name).filename().string()},
               {"text_sha256", sha256_hex(text.text)},
               {"window", gate.window},
               {"windows", result.windows},
               {"kl_mean", result.kl_mean.value},
               {"kl_mean_error", result.kl_mean.error},
               {"same_top1", result.same_top1.value},
               {"ppl", result.ppl.value},
               {"ppl_base", result.ppl_base.value}};
  if (gate.cache) {
    json["keys"] = kv_type_name(gate.cache->key_type);
    json["values"] = kv_type_name(gate.cache->value_type);
  }
  return json;
}

}  // namespace

void check_gate_text(const GateText& text, std::int64_t tokens, std::int64_t context) {
  require(context >= kFewestGateTokens, "a context of ", context,
          " positions is too short to judge by");
  require(tokens >= kFewestGateTokens, text.name, ": ", tokens,
          " tokens are too few to judge by, give more");
}

GateText built_in_gate_text() {
  return {std::string(built_in_heldout_text()), std::string(kBuiltIn)};
}

GateResult compare_with_base(const fs::path& base_file, const fs::path& output,
                             std::int64_t windows, const QuantizeOptions& options) {
  const GateText& text = options.gate_text;
  Workers workers(options.threads);
  const Model base(base_file, {.mode = LoadMode::map});
  const Model model(output, {.mode = LoadMode::map});
  const std::vector<Token> tokens = encode_text(model.tokenizer(), text.text);
  const std::int64_t context = model.config().context;
  check_gate_text(text, std::ssize(tokens), context);
  ProtocolSettings settings;
  settings.join = Join::none;
  settings.window = std::min({kGateWindow, std::ssize(tokens), context});
  settings.stride = settings.window;
  settings.chunks = windows;
  const std::vector<Window> planned = plan_windows(settings, std::ssize(tokens));
  Session base_session(base, *workers.backend, gate_limits(base, settings.window));
  Session session(model, *workers.backend, gate_limits(model, settings.window));
  PerplexityRun run = {.tokens = tokens, .windows = planned};
  run.progress = [&](std::int64_t done, double) {
    require(!options.stop(), ErrorKind::interrupted, "interrupted");
    options.progress("gate", done, std::ssize(planned), "");
  };
  return {measure_divergence(base_session, session, workers.pool, run).summarize(settings.protocol),
          text.name, settings.window, model.kv_evidence()};
}

void keep_gate(const GateResult& gate, const GateText& text, const fs::path& output) {
  const LeqReader written(output, {.mode = LoadMode::map, .weights = false});
  write_copy(
      output, written, [&](const std::string&) -> const LeqReader& { return written; },
      [&](Json& metadata) {
        metadata["provenance"]["gate"] = gate_json(gate, text);
        if (!gate.cache) return;
        KvEvidence proven = *gate.cache;
        proven.kl = gate.divergence.kl_mean.value;
        metadata["kv_cache"] = kv_evidence_to_json(proven);
      });
}

namespace {

std::string gate_line(const GateResult& gate) {
  const DivergenceResult& result = gate.divergence;
  std::string line = "gate        KL " + fixed(result.kl_mean.value, 5) + " +- " +
                     fixed(result.kl_mean.error, 5) + " nats, same first choice " +
                     fixed(100 * result.same_top1.value, 1) + " %, ";
  // Perplexities of the built-in pages, mostly code and tables, say nothing about other texts.
  if (gate.text != kBuiltIn) {
    line += "perplexity " + fixed(result.ppl.value, 3) + " (unquantized " +
            fixed(result.ppl_base.value, 3) + "), ";
  }
  line += std::to_string(result.windows) + " windows of " + std::to_string(gate.window) +
          " tokens of " + gate.text;
  if (gate.text == kBuiltIn) {
    line += " (other texts: up to " + fixed(kOtherTexts, 1) + " times as much)";
  }
  if (!gate.cache) return line;
  return line + ", keys " + std::string(kv_type_name(gate.cache->key_type)) + ", values " +
         std::string(kv_type_name(gate.cache->value_type));
}

}  // namespace

std::string gate_report(const GateResult& gate, const Recipe* recipe) {
  const std::string line = gate_line(gate);
  if (recipe == nullptr) return line;
  const bool passed = gate.divergence.kl_mean.value <= recipe->kl_limit;
  return line + "\n            limit of " + recipe->name + ": " + fixed(recipe->kl_limit, 3) +
         " nats, " + (passed ? "passed" : "not passed: try " + recipe->advice);
}

std::string gate_report(const GateResult& gate, double max_kl) {
  const bool passed = gate.divergence.kl_mean.value <= max_kl;
  return gate_line(gate) + "\n            " + Setting{"max_kl"}.marked() + " " + fixed(max_kl, 3) +
         ": " + (passed ? "passed" : "not passed: give more memory or a shorter context");
}

BaseSpace base_space(const ImportedModel& model, const fs::path& output) {
  constexpr std::uint64_t kTables = 16 << 20;
  std::error_code unknown;
  const fs::space_info space =
      fs::space(output.has_parent_path() ? output.parent_path() : ".", unknown);
  const auto parameters = static_cast<std::uint64_t>(parameter_count(model.config));
  // 5 % more than the checkpoint, for padding to panels of 64 rows and 128 columns.
  return {.needed = parameters * dtype_bytes(model.dtype) * 21 / 20 + kTables,
          .available = unknown ? 0 : space.available};
}

std::string shortage(const BaseSpace& space) {
  if (space.needed <= space.available) return "";
  return human_bytes(space.needed) + " of disk are needed, " + human_bytes(space.available) +
         " are there";
}

}  // namespace leq
