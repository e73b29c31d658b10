// leq-inspect: prints the contents of a .leq file, verifies its checksums, and computes the memory
// for running it; also prints the token ids of a text.
#include <algorithm>
#include <iostream>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "convert/tokenizer_import.h"
#include "engine/engine.h"
#include "engine/receipt.h"
#include "model/model_report.h"
#include "model/open_model.h"
#include "runtime/runtime.h"
#include "tools/common/device_choice.h"
#include "tools/common/kv_choice.h"
#include "tools/common/mains.h"
#include "tools/common/model_file.h"
#include "tools/common/model_options.h"
#include "tools/common/options.h"
#include "tools/inspect/fit.h"

namespace leq {
namespace {

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{4} << 30;

std::string read_text(const std::string& path) {
  if (path != "-") return read_text_file(path, kMaxTextBytes);
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  require(!std::cin.bad(), "standard input: cannot read");
  return text;
}

std::string encode(const Tokenizer& tokenizer, std::string_view text,
                   const EncodeOptions& options) {
  std::string line = "[";
  for (const Token id : tokenizer.encode(text, options)) {
    if (line.size() > 1) line += ", ";
    line += std::to_string(id);
  }
  return line + "]\n";
}

std::string tokenize_file(const std::filesystem::path& path, const std::string& text_path,
                          const std::string& pretokenizer, const EncodeOptions& options) {
  const std::string text = read_text(text_path);
  if (const auto offset = first_invalid_utf8(text)) {
    fail(text_path == "-" ? "standard input" : text_path, ": byte ", *offset,
         " is no UTF-8; convert the text first (iconv -t UTF-8)");
  }
  if (path.extension() == ".leq" || begins_as_leq_file(path)) {
    LoadOptions load;
    load.mode = LoadMode::map;
    const Model model(path, load);
    return encode(model.tokenizer(), text, options);
  }
  const ImportedTokenizer imported = import_tokenizer(path, {pretokenizer});
  return encode(Tokenizer(imported.spec), text, options);
}

std::string token_text(const Tokenizer& tokenizer, Token id) {
  if (id == kNoToken) return "its end";
  return std::to_string(id) + " '" + printable(tokenizer.decode(std::span(&id, 1), true)) + "'";
}

[[noreturn]] void fail_for(const ReceiptDifference& difference, const Receipt& receipt,
                           const Tokenizer& tokenizer, const std::string& source) {
  const std::string place = "token " +
                            with_commas(static_cast<std::int64_t>(difference.place) + 1) + " of " +
                            with_commas(std::ssize(receipt.tokens));
  if (difference.logits) {
    fail(source, ": the logits before ", place, " are others here, though all tokens so far agree");
  }
  fail(source, ": ", place, " is ", token_text(tokenizer, difference.expected),
       " in the receipt, and ", token_text(tokenizer, difference.written), " here");
}

std::string check_receipt_file(const std::filesystem::path& path,
                               const std::filesystem::path& model_path, const Options& options) {
  const std::string source = printable(path.string());
  const Receipt receipt = read_receipt(path);
  const Model model(model_path, {});
  require(model.file().fingerprint() == receipt.owner.model, source, ": the receipt is of another ",
          "model, '", printable(receipt.model), "', not of ", model.file().name());
  const auto threads = static_cast<int>(std::max<std::int64_t>(0, options.integer("threads")));
  const auto backend = chosen_backend(options, threads);
  const RunLimits limits = resolve_limits(receipt_limits(receipt, {}), model.config());
  Session session(model, *backend, limits);
  const Stopwatch watch;
  const auto difference = [&] {
    Progress progress("receipt", std::ssize(receipt.prompt) + std::ssize(receipt.tokens), "tokens");
    return check_receipt(session, model.tokenizer(), receipt, source,
                         [&](std::int64_t done) { progress.update(done); });
  }();
  if (difference) fail_for(*difference, receipt, model.tokenizer(), source);
  const double seconds = watch.seconds();
  const auto tokens = std::ssize(receipt.tokens);
  const auto checkpoints = std::ssize(receipt.digests);
  return source + ": verified: all " + with_commas(tokens) + " tokens match, and the logits at " +
         with_commas(checkpoints) + (checkpoints == 1 ? " checkpoint (" : " checkpoints (") +
         fixed(seconds, 2) + " s, " + fixed(static_cast<double>(tokens) / seconds, 1) + " t/s)\n";
}

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
  return in_group("Memory plan (with --fit)", std::move(options));
}

ToolSpec tool_spec() {
  ToolSpec tool;
  tool.name = "leq-inspect";
  tool.summary = "shows what a .leq or GGUF file holds, plans memory, tokenizes text";
  tool.usage = {"model.leq [--json | --verify]", "model.gguf --fit [-dev cuda --vram 24G]",
                "PATH --tokenize FILE", "model.leq --check-receipt FILE"};
  tool.max_positionals = 1;
  tool.options = in_group(
      "What to do",
      {
          {.name = "model",
           .spellings = "-m",
           .kind = OptionKind::text,
           .value_name = "FILE",
           .help = "the model, as for the other tools"},
          {.name = "json", .help = "print JSON"},
          {.name = "verify", .help = "verify the checksum of every tensor"},
          {.name = "fit", .help = "print the exact memory plan, from the header alone"},
          {.name = "tokenize",
           .kind = OptionKind::text,
           .value_name = "FILE",
           .help =
               "print the token ids of FILE (- is standard input) as a JSON array; PATH may also "
               "be a model folder, or a tokenizer file or folder"},
          {.name = "check-receipt",
           .kind = OptionKind::text,
           .value_name = "FILE",
           .help = "generate the reply of a receipt (leq-run --receipt) again and report the first "
                   "token that differs"},
          {.name = "bos", .help = "--tokenize: begin with the BOS token"},
          {.name = "special",
           .fallback = "true",
           .help = "--tokenize: treat special tokens in the text as plain text"},
          {.name = "pretokenizer",
           .kind = OptionKind::text,
           .value_name = "NAME",
           .help = "--tokenize: gpt-2, llama-3 or qwen2, for rank files, which do not name theirs"},
      });
  add_options(tool, fit_options());
  tool.answers.push_back(list_devices_answer());
  return tool;
}

RunLimits limits_of(const Options& options, const Model& model) {
  RunLimits limits;
  limits.context = options.integer("ctx-size");
  limits.sequences = static_cast<int>(options.integer("parallel"));
  // As leq-server and leq-run do: sequences share the positions.
  if (limits.sequences > 1) limits.sequence_context = std::numeric_limits<std::int64_t>::max();
  const Drafting drafting = options.text("speculate") == "off" ? Drafting::off
                            : drafts_by_mtp(options, model)    ? Drafting::by_model
                                                               : Drafting::from_text;
  limits.output_tokens = reply_rows(limits.sequences, drafting);
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

int inspect(const Options& options) {
  const std::string& path = options.text("model");
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

int run(const Options& options) {
  require(
      options.positionals().size() + (options.given("model") ? 1 : 0) == 1,
      "a path must be given, once: leq-inspect model.leq, or -m model.leq; see leq-inspect --help");
  Options named = options;
  if (!options.given("model")) named.set_text("model", named.take_positional());
  if (!options.has("tokenize")) return with_model_files(named, inspect);
  EncodeOptions encode;
  encode.parse_special = options.flag("special");
  encode.add_bos = options.flag("bos");
  const std::string pretokenizer = options.has("pretokenizer") ? options.text("pretokenizer") : "";
  std::cout << tokenize_file(named.text("model"), options.text("tokenize"), pretokenizer, encode);
  return 0;
}

}  // namespace
}  // namespace leq

int leq::inspect_main(int argc, char** argv) {
  return leq::run_tool("leq-inspect", leq::tool_spec, argc, argv, leq::run);
}
