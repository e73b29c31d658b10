// leq-inspect: prints the contents of a .leq file, verifies its checksums, and computes the memory
// for running it; also prints the token ids of a text.
#include <iostream>

#include "base/error.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "engine/engine.h"
#include "model/model_report.h"
#include "runtime/runtime.h"
#include "tools/common/device_choice.h"
#include "tools/common/kv_choice.h"
#include "tools/common/model_options.h"
#include "tools/common/model_path.h"
#include "tools/common/options.h"
#include "tools/common/rank_choice.h"
#include "tools/common/reply_options.h"
#include "tools/inspect/fit.h"
#include "tools/inspect/receipt.h"
#include "tools/inspect/tokenize.h"

namespace leq {
namespace {

constexpr const char* kFit = "Memory plan (with --fit)";

// Shared options that affect the memory plan, under a heading of their own.
std::vector<Option> fit_options() {
  std::vector<Option> options =
      model_options({"model", "threads-batch", "numa", "graph", "mmap", "mlock", "verbose"});
  options.push_back(
      {.name = "speculate",
       .kind = OptionKind::text,
       .value_name = "HOW",
       .fallback = "auto",
       .help = "value of leq-run --speculate to plan for: draft tokens need rows of logits, and a "
               "head of multi-token prediction needs a KV cache of its own",
       .choices = {kSpeculations.begin(), kSpeculations.end()}});
  for (Option& option : options) option.group = kFit;
  return options;
}

ToolSpec tool_spec() {
  ToolSpec tool;
  tool.name = "leq-inspect";
  tool.summary = "shows what a .leq file holds, plans memory, tokenizes text";
  tool.usage = {"model.leq [--json | --verify]", "model.leq --fit [-dev cuda --vram 24G]",
                "PATH --tokenize FILE", "model.leq --check-receipt FILE"};
  tool.max_positionals = 1;
  const std::string group = "What to do";
  tool.options = {
      {.name = "model",
       .spellings = "-m",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "the model, given as to the other tools",
       .group = group},
      {.name = "json", .help = "print JSON", .group = group},
      {.name = "verify", .help = "compare the checksum of every tensor", .group = group},
      {.name = "fit", .help = "print the exact memory plan, from the header alone", .group = group},
      {.name = "tokenize",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "print the token ids of FILE (- is standard input) as a JSON array; PATH may also "
               "be a model folder, or a tokenizer file or folder",
       .group = group},
      {.name = "check-receipt",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "generate the reply of a receipt (leq-run --receipt) again and report the first "
               "token that differs",
       .group = group},
      {.name = "bos", .help = "--tokenize: begin with the token of that kind", .group = group},
      {.name = "special",
       .fallback = "true",
       .help = "--tokenize: take special tokens in the text as plain text",
       .group = group},
      {.name = "pretokenizer",
       .kind = OptionKind::text,
       .value_name = "NAME",
       .help = "--tokenize: gpt-2, llama-3 or qwen2, for rank files that do not say theirs",
       .group = group},
  };
  for (Option& option : fit_options()) tool.options.push_back(std::move(option));
  tool.answers.push_back(list_devices_answer());
  return tool;
}

RunLimits limits_of(const Options& options, const Model& model) {
  RunLimits limits;
  limits.context = options.integer("ctx-size");
  limits.sequences = static_cast<int>(options.integer("parallel"));
  limits.output_tokens = reply_rows(
      limits.sequences, options.text("speculate") == "off" ? Drafting::off : Drafting::from_text);
  limits.batch_tokens = std::min(options.integer("batch-size"), options.integer("ubatch-size"));
  choose_kv(options, model, limits);
  return limits;
}

FitDevice fit_device(const Options& options, const Model& model) {
  check_gpu_layers(options, model.config().layer_count());
  const auto threads = static_cast<int>(std::max<std::int64_t>(0, options.integer("threads")));
  const GpuOptions gpu = {memory_cap(options), arithmetic_of(options)};
  return {device_name(options), threads, gpu, rank_count(options)};
}

// Prints one line to `out` if all checksums match.
void verify(const Model& model, std::ostream& out) {
  const Stopwatch watch;
  const auto bytes = static_cast<std::int64_t>(model.file().file_bytes());
  {
    Progress progress("verify", bytes, "bytes");
    model.file().verify([&](std::uint64_t done, std::uint64_t) {
      progress.update(static_cast<std::int64_t>(done));
    });
  }
  const double seconds = watch.seconds();
  out << model.file().name() << ": all " << model.file().tensors().size() << " tensors are whole ("
      << human_bytes(model.file().file_bytes()) << ", "
      << fixed(static_cast<double>(bytes) / seconds / 1e9, 2) << " GB/s)\n";
}

int run(const Options& options) {
  require(
      options.positionals().size() + (options.given("model") ? 1 : 0) == 1,
      "a path must be given, once: leq-inspect model.leq, or -m model.leq; see leq-inspect --help");
  const std::string& path =
      options.given("model") ? options.text("model") : options.positionals().front();
  if (options.has("tokenize")) {
    EncodeOptions encode;
    encode.parse_special = options.flag("special");
    encode.add_bos = options.flag("bos");
    const std::string pretokenizer =
        options.has("pretokenizer") ? options.text("pretokenizer") : "";
    std::cout << tokenize_file(path, options.text("tokenize"), pretokenizer, encode);
    return 0;
  }
  check_model_file("", path);
  if (options.has("check-receipt")) {
    std::cout << check_receipt_file(options.text("check-receipt"), path, options);
    return 0;
  }
  LoadOptions load;
  load.mode = LoadMode::map;  // files may be larger than memory
  const Model model(path, load);
  const bool json = options.flag("json");
  if (options.flag("verify")) verify(model, json ? std::cerr : std::cout);
  if (options.flag("fit")) {
    FitReport report;
    naming_gpu_layers(options, [&] {
      report = plan_fit(model, limits_of(options, model), fit_device(options, model),
                        drafts_by_mtp(options, model));
    });
    std::cout << (json ? fit_json(report).dump(2) + '\n' : fit_text(report));
  } else if (json) {
    std::cout << inspect_json(model);
  } else if (!options.flag("verify")) {
    std::cout << inspect_text(model);
  }
  return 0;
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) {
  return leq::run_tool("leq-inspect", leq::tool_spec, argc, argv, leq::run);
}
