// leq-perplexity: measures a model's perplexity on a text with a reproducible protocol.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/table.h"
#include "base/text.h"
#include "eval/divergence.h"
#include "eval/perplexity.h"
#include "eval/report.h"
#include "tools/common/device_choice.h"
#include "tools/common/kv_choice.h"
#include "tools/common/llama_flags.h"
#include "tools/common/mains.h"
#include "tools/common/model_file.h"
#include "tools/common/model_name.h"
#include "tools/common/model_options.h"
#include "tools/common/model_setup.h"
#include "tools/common/options.h"
#include "tools/common/pull.h"

namespace leq {
namespace {

struct PartRow {
  std::string part;
  Estimate both;
  double weights = 0;  // nats
  std::optional<double> inputs;
};

Row table_row(const PartRow& part) {
  return {{"part", part.part},
          {"kl", Cell(part.both.value, 6)},
          {"kl_stderr", Cell(part.both.error, 6)},
          {"kl_weights", Cell(part.weights, 6)},
          {"kl_inputs", part.inputs ? Cell(*part.inputs, 6) : Cell()}};
}

// Prints one row for each part of setup's model: the KL divergence in nats from the model of `base`
// if only this part is quantized; sorted, worst first.
void print_kl_by(const Options& options, const Runtime& setup, const PerplexityRun& run,
                 const DivergenceBaseReader& base, const DivergenceKey& key) {
  require(options.given("kl-from"), "--kl-by: needs --kl-from FILE, the unquantized model");
  require(device_name(options) == "cpu", "--kl-by: runs on the CPU; add -dev cpu");
  const Model unquantized(options.text("kl-from"), {.mode = LoadMode::map});
  const Model& model = *setup.model;
  const bool by_site = options.text("kl-by") == "site";
  const std::vector<ModelPart> parts = by_site ? site_parts(model) : layer_parts(model);
  ThreadPool pool(setup.threads);
  Progress progress("KL by " + options.text("kl-by"), std::ssize(parts), "parts");
  Backend& backend = *setup.backend;
  const RunLimits& limits = setup.session->limits();
  Estimate kl;
  const SessionUse measure = [&](Session& session) {
    kl = measure_divergence(session, pool, run, base, key).summarize(run.protocol).kl_mean;
  };
  const auto kl_of = [&](const ModelPart& part, PartSide side) {
    if (side == PartSide::both && !part.site) {
      with_layer_of(unquantized, model, part.layer, backend, limits, measure);
    } else {
      with_rounded_part(unquantized, model, part, side, backend, limits, measure);
    }
    return kl;
  };
  const auto kl_of_tables = [&](PartSide side) {
    with_tables_of(unquantized, model, side, backend, limits, measure);
    return kl;
  };
  std::vector<PartRow> rows;
  for (const ModelPart& part : parts) {
    rows.push_back({part.name, kl_of(part, PartSide::both), kl_of(part, PartSide::weights).value,
                    kl_of(part, PartSide::inputs).value});
    progress.update(std::ssize(rows), part.name);
  }
  progress.clear();
  if (has_quantized_tables(model)) {
    rows.push_back({"embedding and head", kl_of_tables(PartSide::both),
                    kl_of_tables(PartSide::weights).value, std::nullopt});
  }
  std::ranges::sort(rows, std::greater(), [](const PartRow& row) { return row.both.value; });
  Table table;
  for (const PartRow& row : rows) table.add(table_row(row));
  std::cout << (options.text("output") == "json" ? table.json() : table.text());
}

constexpr std::uint64_t kLargestReport = 1u << 20;

ToolSpec tool_spec() {
  ToolSpec tool = {
      .name = "leq-perplexity",
      .summary = "measures the perplexity of a model on a text",
      .usage = {"model.leq -f wiki.test.raw [options]",
                "model.leq -f wiki.test.raw --against other.json",
                "-m f32.leq -f wiki.test.raw --kl-divergence-base base.kl",
                "-m model.leq -f wiki.test.raw --kl-divergence-base base.kl --kl-divergence",
                "-m model.leq -f wiki.test.raw --kl-divergence-base base.kl --kl-from f32.leq "
                "--kl-by layer"},
  };
  add_options(
      tool,
      in_group(
          "Measurement",
          {
              {.name = "file",
               .spellings = "-f",
               .kind = OptionKind::text,
               .value_name = "FILE",
               .help = "the text, in UTF-8"},
              {.name = "protocol",
               .kind = OptionKind::text,
               .value_name = "P",
               .fallback = "hf",
               .help = "how the text is divided into windows, and which tokens are scored",
               .choices = {"hf", "hf-stride", "llamacpp-512"}},
              {.name = "window",
               .spellings = "-c --ctx-size",
               .kind = OptionKind::integer,
               .value_name = "N",
               .help = "tokens in a window (default: the model's context, at most 2048)",
               .minimum = 2,
               .maximum = 16777216},
              {.name = "chunks",
               .kind = OptionKind::integer,
               .value_name = "N",
               .fallback = "0",
               .help = "measure only the first N windows; 0: all",
               .minimum = 0},
              {.name = "join",
               .kind = OptionKind::text,
               .value_name = "RULE",
               .help = "whether lines are rows, joined by empty lines: hf, or none (default hf for "
                       "wiki.test.raw with a hf protocol, else none)",
               .choices = {"hf", "none"}},
              {.name = "stride",
               .spellings = "--ppl-stride",
               .kind = OptionKind::integer,
               .value_name = "N",
               .help =
                   "hf-stride: tokens from window to window (default 512, half of a window below "
                   "1024)",
               .minimum = 1,
               .maximum = 16777216},
              {.name = "output",
               .spellings = "-o",
               .kind = OptionKind::text,
               .value_name = "FORMAT",
               .fallback = "text",
               .help = "what to print",
               .choices = {"text", "json"}},
              {.name = "against",
               .kind = OptionKind::text,
               .value_name = "FILE",
               .help = "compare with an earlier run, a file with the output of -o json"},
              {.name = "kl-divergence-base",
               .kind = OptionKind::text,
               .value_name = "FILE",
               .help = "file of the base model's token distributions: this run writes it, or with "
                       "--kl-divergence reads it"},
              {.name = "kl-by",
               .kind = OptionKind::text,
               .value_name = "PART",
               .help =
                   "with --kl-divergence-base and --kl-from: KL divergence where one layer or one "
                   "site alone is quantized, its weights, its inputs and both; the worst first",
               .choices = {"layer", "site"}},
              {.name = "kl-from",
               .kind = OptionKind::text,
               .value_name = "FILE",
               .help = "with --kl-by: the unquantized model, which wrote --kl-divergence-base"},
              {.name = "kl-divergence",
               .help = "compare the model with the one that wrote --kl-divergence-base"},
          }));
  add_options(tool, model_options({"ctx-size", "parallel"}));
  add_options(tool, hub_options());
  tool.max_positionals = 1;  // the model
  tool.foreign = llama_flags();
  tool.answers.push_back(list_devices_answer());
  return tool;
}

ProtocolRequest request_from(const Options& options) {
  ProtocolRequest request;
  request.protocol = options.text("protocol");
  if (options.given("join")) request.join = options.text("join");
  if (options.given("window")) request.window = options.integer("window");
  if (options.given("stride")) request.stride = options.integer("stride");
  request.chunks = options.integer("chunks");
  return request;
}

// Returns the longest window, which is the model's context.
std::int64_t longest_window(const Model& model) { return model.config().context; }

// Fills in the parts of a report that are known before the run.
PerplexityReport start_report(const Options& options, const Runtime& setup,
                              const EvaluationText& text, const ProtocolSettings& settings) {
  PerplexityReport report;
  report.model = report_name(options.text("model"));
  report.type = setup.model->type();
  report.key_type = kv_label(setup.session->limits().key_type, setup.session->limits());
  report.value_type = kv_label(setup.session->limits().value_type, setup.session->limits());
  report.bits_per_weight = setup.model->bits_per_weight();
  report.vocab = setup.model->config().vocab;
  report.settings = settings;
  report.dataset = std::filesystem::path(options.text("file")).filename().string();
  report.dataset_hash = text.dataset_hash;
  report.text_sha256 = text.text_sha256;
  return report;
}

// The results of one run, with the divergence if it was requested.
struct Measured {
  PerplexityResult result;
  std::optional<DivergenceResult> divergence;
};

Measured measure(const Options& options, const Runtime& setup, const PerplexityRun& run,
                 const PerplexityReport& report, const DivergenceBaseReader* base) {
  ThreadPool pool(setup.threads);
  Session& session = *setup.session;
  const auto key = [&] { return divergence_key(report, token_hash(run.tokens, run.window_bos)); };
  if (base != nullptr) {
    const Divergence found = measure_divergence(session, pool, run, *base, key());
    return {found.perplexity(run.protocol), found.summarize(run.protocol)};
  }
  if (!options.given("kl-divergence-base")) return {measure_perplexity(session, pool, run), {}};
  const std::string& path = options.text("kl-divergence-base");
  const WrittenBase written = write_divergence_base(session, pool, run, path, key());
  std::cerr << "wrote " << printable(path, std::string::npos) << ", "
            << human_bytes(written.file_bytes) << '\n';
  return {written.result, {}};
}

// The token that replaces the first token of each window.
Token window_bos(Protocol protocol, const Tokenizer& tokenizer) {
  const bool replaced = protocol == Protocol::llamacpp_512 && tokenizer.add_bos();
  return replaced ? tokenizer.bos() : kNoToken;
}

// Runs with a progress line that shows the value so far.
Measured measure_with_progress(const Options& options, const Runtime& setup, PerplexityRun run,
                               const PerplexityReport& report, const DivergenceBaseReader* base) {
  run.window_bos = window_bos(run.protocol, setup.model->tokenizer());
  Progress progress(base != nullptr ? "KL divergence" : "perplexity", std::ssize(run.windows),
                    "windows");
  run.progress = [&](std::int64_t done, double so_far) {
    progress.update(done, base != nullptr ? "KL " + fixed(so_far, 6) : "PPL " + fixed(so_far, 4));
  };
  return measure(options, setup, run, report, base);
}

// Opens the base file of --kl-divergence before any work is done.
std::unique_ptr<DivergenceBaseReader> open_base(const Options& options) {
  const bool reads = options.flag("kl-divergence") || options.given("kl-by");
  if (options.given("kl-divergence-base") && !reads) {
    const std::filesystem::path written = options.text("kl-divergence-base");
    check_output(written);
    require_no_input(
        written, std::array<std::filesystem::path, 2>{options.text("model"), options.text("file")});
  }
  if (!reads) return nullptr;
  require(options.given("kl-divergence-base"),
          options.given("kl-by") ? "--kl-by" : "--kl-divergence",
          ": needs --kl-divergence-base FILE, which the base model wrote");
  return std::make_unique<DivergenceBaseReader>(options.text("kl-divergence-base"));
}

// The earlier run that --against names.
struct ComparedRun {
  Json json;
  EarlierRun run;
};

Row against_row(const PerplexityReport& report, const ComparedRun& against, const Measured& found) {
  Row row = comparison_row(report, against.run);
  if (!found.divergence) return row;
  const std::vector<double> windows =
      earlier_window_kl(*found.divergence, against.json, against.run.source);
  if (windows.empty()) {
    std::cerr << against.run.source
              << ": no KL divergence from the same base, so none to compare\n";
    return row;
  }
  for (auto& cell : kl_comparison_row(*found.divergence, windows)) row.push_back(std::move(cell));
  return row;
}

void print_report(const Options& options, const PerplexityReport& report,
                  const std::optional<ComparedRun>& against, const Measured& found,
                  const DivergenceBaseReader* base) {
  if (options.text("output") == "json") {
    Row row = report_row(report);
    if (found.divergence) {
      for (auto& cell : divergence_row(*found.divergence)) row.push_back(std::move(cell));
    }
    if (against) {
      for (auto& cell : against_row(report, *against, found)) row.push_back(std::move(cell));
    }
    std::cout << json_object(row);
    return;
  }
  std::cout << report_text(report);
  if (found.divergence) std::cout << '\n' << divergence_text(*found.divergence, base->key());
  if (!against) return;
  Table table;
  table.add(against_row(report, *against, found));
  std::cout << '\n' << table.text();
}

int perplexity(const Options& options) {
  require(options.positionals().empty(), "-m and '",
          options.positionals().empty() ? "" : printable(options.positionals().front()),
          "' both name a model: leave one out");
  ProtocolRequest request = request_from(options);
  std::optional<Join> join;
  if (request.join || request.protocol == "llamacpp-512") {
    join = request.join == "hf" ? Join::hf : Join::none;
  }
  const EvaluationText text = read_evaluation_text(options.text("file"), join);
  request.join = join_name(text.join);
  const std::unique_ptr<DivergenceBaseReader> base = open_base(options);
  const Runtime setup = set_up_model(options, [&](const Model& model, RunLimits& limits) {
    limits.context = resolve_protocol(request, longest_window(model)).window;
    limits.output_tokens = kOutputRows;
  });
  const ProtocolSettings settings = resolve_protocol(request, longest_window(*setup.model));
  PerplexityReport report = start_report(options, setup, text, settings);
  const std::vector<Token> tokens = encode_text(setup.model->tokenizer(), text.text);
  const std::vector<Window> windows =
      plan_windows(settings, std::ssize(tokens), options.text("file"));
  report.tokens = std::ssize(tokens);
  report.windows = std::ssize(windows);
  for (const Window& window : windows) report.scored += window.scored();

  if (options.given("kl-by")) {
    PerplexityRun run = {.tokens = tokens, .windows = windows, .protocol = settings.protocol};
    run.window_bos = window_bos(settings.protocol, setup.model->tokenizer());
    print_kl_by(options, setup, run, *base,
                divergence_key(report, token_hash(tokens, run.window_bos)));
    return 0;
  }
  std::optional<ComparedRun> against;
  if (options.given("against")) {
    const std::string& path = options.text("against");
    Json json = parse_json(read_file(path, kLargestReport), path);
    const EarlierRun run = require_same_measurement(report, json, path);
    against = ComparedRun{std::move(json), run};
  }
  if (options.flag("verbose")) {
    for (const std::string& line : plan_lines(*setup.model, *setup.session)) {
      std::cerr << line << '\n';
    }
  }
  const Measured found = measure_with_progress(
      options, setup, {.tokens = tokens, .windows = windows, .protocol = settings.protocol}, report,
      base.get());
  report.result = found.result;
  print_report(options, report, against, found, base.get());
  return 0;
}

int perplexity_of_named(const Options& options) {
  const bool named =
      options.given("model") || options.given("hf-repo") || !options.positionals().empty();
  require(options.given("file") || !named, "no text: give a file in UTF-8, as -f wiki.test.raw");
  return with_model_files(options, perplexity);
}

}  // namespace
}  // namespace leq

const leq::Tool leq::kPerplexity = {"leq-perplexity", leq::tool_spec, leq::perplexity_of_named};
