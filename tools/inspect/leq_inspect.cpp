// leq-inspect: prints the contents of a .leq file, verifies its checksums, and computes the memory
// for running it; also prints the token ids of a text.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "base/stopwatch.h"
#include "base/table.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "convert/tokenizer_import.h"
#include "convert/tokenizer_parts.h"
#include "engine/engine.h"
#include "engine/receipt.h"
#include "engine/speculation.h"
#include "format/loaded_file.h"
#include "model/memory_plan.h"
#include "model/model_report.h"
#include "model/open_model.h"
#include "model/ranks.h"
#include "runtime/make_backend.h"
#include "runtime/runtime.h"
#include "tools/common/device_choice.h"
#include "tools/common/kv_choice.h"
#include "tools/common/mains.h"
#include "tools/common/model_file.h"
#include "tools/common/model_name.h"
#include "tools/common/model_options.h"
#include "tools/common/options.h"
#include "tools/common/pull.h"

namespace leq {
namespace {

struct FitReport {
  std::string device = "cpu";  // the user's spelling
  RunLimits limits;            // resolved
  int threads = 0;
  MemoryPlan plan;                               // sum over all ranks, counting weights once
  std::vector<MemoryPlan> ranks;                 // for each rank, if there are several
  std::optional<std::uint64_t> available_bytes;  // nullopt if unknown
  // The largest number of positions (of all sequences, up to the model's own for each, or as many
  // as were asked for) that fits; 0 = none.
  std::int64_t largest_context = 0;

  bool on_gpu() const { return device != "cpu"; }
};

// The device to plan for. A GPU, or a build for it, need not be present: if a cap is given, only
// its memory layout is needed.
struct FitDevice {
  std::string device = "cpu";
  int threads = 0;
  GpuOptions gpu = {};
  int ranks = 1;  // the ranks share the threads
};

std::string where(const FitReport& report) {
  if (report.on_gpu()) return "on " + report.device;
  return std::to_string(report.threads) + (report.threads == 1 ? " thread" : " threads");
}

// Returns the GPU's memory cap if there is one, as the GPU may be absent; otherwise free memory.
std::optional<std::uint64_t> available_for(const FitDevice& wanted) {
  if (wanted.device == "cpu") return available_memory();
  if (wanted.gpu.memory_cap > 0) return wanted.gpu.memory_cap;
  try {
    const auto backend = make_backend({wanted.device, wanted.threads});
    return backend->memory().info()->bytes;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::no_device) throw;
    fail(error.kind(), error.marked(),
         "; to plan for a GPU that is not here, say what it has: --vram 24G");
  }
}

// Plans the memory of each rank, which includes the scratch of the rank's own threads.
std::vector<MemoryPlan> plan_ranks(const Model& model, const RunLimits& limits, int threads,
                                   const FitDevice& device) {
  std::vector<MemoryPlan> plans;
  for (int rank = 0; rank < device.ranks; ++rank) {
    const int own = threads_of_rank(threads, rank, device.ranks);
    const auto layout = make_layout({device.device, own, device.gpu});
    const RankPlace place = place_of(model.config(), rank, device.ranks);
    plans.push_back(MemoryPlanner(model, *layout, place).plan(limits));
  }
  return plans;
}

// Sums the plans. Ranks on the CPU share the file's weights, so these are counted once.
MemoryPlan joined(const std::vector<MemoryPlan>& plans, const FitDevice& device) {
  MemoryPlan all;
  for (const MemoryPlan& plan : plans) {
    all.weight_bytes =
        device.device == "cpu" ? plan.weight_bytes : all.weight_bytes + plan.weight_bytes;
    all.kv_bytes += plan.kv_bytes;
    all.state_bytes += plan.state_bytes;
    all.scratch_bytes += plan.scratch_bytes;
  }
  return all;
}

void add_mtp(const MemoryPlan& mtp, MemoryPlan& plan) {
  plan.weight_bytes += mtp.weight_bytes;
  plan.kv_bytes += mtp.kv_bytes;
  plan.scratch_bytes += mtp.scratch_bytes;
}

// Returns the bytes that one device must have: those of the largest rank if ranks have GPUs.
std::uint64_t largest_part(const FitReport& report) {
  if (!report.on_gpu() || report.ranks.empty()) return report.plan.total();
  std::uint64_t most = 0;
  for (const MemoryPlan& plan : report.ranks) most = std::max(most, plan.total());
  return most;
}
const char* where_free(const FitReport& report) {
  return report.on_gpu() && !report.ranks.empty() ? " on each GPU" : "";
}

// Throws Error if the limits do not fit the model, or if a device without a cap is absent. `mtp`:
// rank 0 also uses the model's multi-token prediction head.
FitReport plan_fit(const Model& model, const RunLimits& wanted, const FitDevice& device, bool mtp) {
  const auto layout = make_layout({device.device, device.threads, device.gpu});
  const MemoryPlanner planner(model, *layout);
  FitReport report;
  report.device = device.device;
  report.limits = resolve_limits(wanted, model.config());
  report.threads = device.threads > 0 ? device.threads : usable_cores();
  report.plan = planner.plan(report.limits);
  if (device.ranks > 1) {
    report.ranks = plan_ranks(model, report.limits, report.threads, device);
    report.plan = joined(report.ranks, device);
  }
  MemoryPlan head;
  if (mtp) {
    head = plan_mtp(model, report.limits, *layout);
    add_mtp(head, report.plan);
    if (!report.ranks.empty()) add_mtp(head, report.ranks.front());
  }
  report.available_bytes = available_for(device);
  if (!report.available_bytes || device.ranks > 1) return report;
  report.largest_context = planner.largest_context(
      wanted, model.config().context,
      *report.available_bytes - std::min(*report.available_bytes, head.total()));
  // Several sequences can share more positions than each of them can use.
  if (report.plan.total() <= *report.available_bytes) {
    report.largest_context = std::max(report.largest_context, report.limits.context);
  }
  return report;
}

std::string fit_text(const FitReport& report) {
  const RunLimits& limits = report.limits;
  std::string text =
      "context " + with_commas(limits.context) + " (" + std::to_string(limits.sequences) +
      (limits.sequences == 1 ? " sequence" : " sequences") + "), batch " +
      std::to_string(limits.batch_tokens) + ", " + kv_text(limits) + ", " + where(report) + "\n\n";
  Table table;
  const auto row = [&](const char* part, std::uint64_t bytes) {
    table.add({{"memory", part},
               {"size", human_bytes(bytes)},
               {"bytes", with_commas(static_cast<std::int64_t>(bytes))}});
  };
  for (std::size_t rank = 0; rank < report.ranks.size(); ++rank) {
    const std::string name = "rank " + std::to_string(rank) + ": ";
    if (report.on_gpu()) row((name + "weights").c_str(), report.ranks[rank].weight_bytes);
    row((name + "KV cache").c_str(), report.ranks[rank].kv_bytes);
    row((name + "scratch").c_str(), report.ranks[rank].scratch_bytes);
  }
  row(report.on_gpu() ? (report.ranks.empty() ? "weights (on the GPU)" : "weights (on the GPUs)")
                      : "weights",
      report.plan.weight_bytes);
  row("KV cache", report.plan.kv_bytes);
  if (report.plan.state_bytes > 0) row("states", report.plan.state_bytes);
  row("scratch", report.plan.scratch_bytes);
  row("total", report.plan.total());
  text += table.text();
  if (!report.available_bytes) return text;
  const bool fits = largest_part(report) <= *report.available_bytes;
  text += '\n' + given_bytes(*report.available_bytes) + " are free" + where_free(report) + ": " +
          (fits ? "it fits" : "it does not fit");
  if (report.ranks.empty() && fits && limits.sequences > 1 &&
      limits.context == report.largest_context) {
    text += "; each sequence can use " + with_commas(limits.sequence_context) + " positions of it";
  } else if (report.ranks.empty()) {
    text += "; the largest context that does is " + with_commas(report.largest_context);
  }
  return text + '\n';
}

Json fit_json(const FitReport& report) {
  const RunLimits& limits = report.limits;
  Json json = {{"context", limits.context},
               {"sequences", limits.sequences},
               {"batch_tokens", limits.batch_tokens},
               {"key_type", kv_type_name(limits.key_type)},
               {"value_type", kv_type_name(limits.value_type)},
               {"kv_layers", kv_layers_text(limits.kv_layers)},
               {"device", report.device},
               {"threads", report.threads},
               {"weight_bytes", report.plan.weight_bytes},
               {"kv_bytes", report.plan.kv_bytes},
               {"state_bytes", report.plan.state_bytes},
               {"scratch_bytes", report.plan.scratch_bytes},
               {"total_bytes", report.plan.total()},
               {"available_bytes", report.available_bytes ? Json(*report.available_bytes) : Json()},
               {"largest_context", report.largest_context}};
  if (report.ranks.empty()) return json;
  json.erase("largest_context");
  for (const MemoryPlan& plan : report.ranks) {
    Json rank = {{"kv_bytes", plan.kv_bytes}, {"scratch_bytes", plan.scratch_bytes}};
    if (report.on_gpu()) rank["weight_bytes"] = plan.weight_bytes;
    json["ranks"].push_back(std::move(rank));
  }
  return json;
}

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

bool names_pretokenizer(const std::filesystem::path& path) {
  const TokenizerFormat format = find_tokenizer_files(path).main.format;
  return format == TokenizerFormat::tokenizer_json || format == TokenizerFormat::sentencepiece;
}

std::string tokenize_file(const std::filesystem::path& path, const std::string& text_path,
                          const std::string& pretokenizer, const EncodeOptions& options) {
  const std::string text = read_text(text_path);
  if (const auto offset = first_invalid_utf8(text)) {
    fail(text_path == "-" ? "standard input" : text_path, ": byte ", *offset,
         " is no UTF-8; convert the text first (iconv -t UTF-8)");
  }
  const bool is_leq = path.extension() == ".leq" || begins_as_leq_file(path);
  if (!pretokenizer.empty() && (is_leq || names_pretokenizer(path))) {
    std::cerr << "leq-inspect: --pretokenizer: does nothing: " << printable(path.string(), 4096)
              << " has its own\n";
  }
  if (is_leq) {
    const Model model(path, {.mode = LoadMode::map, .weights = false});
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
  tool.summary = "shows what a model's file holds, plans memory, tokenizes text";
  tool.usage = {"model.leq [--all | --json | --verify]", "model.gguf --fit [-dev cuda --vram 24G]",
                "HF_DIR --fit -c 32768                  (as --type int8-g128)",
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
          {.name = "all", .help = "print the configuration and each tensor, not layers together"},
          {.name = "json", .help = "print JSON"},
          {.name = "verify", .help = "verify the checksum of every tensor"},
          {.name = "fit", .help = "print the memory plan, from the header alone"},
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
           .help = "--tokenize: how texts are split, for rank files and vocabularies with merges, "
                   "which do not name it",
           .choices = pretokenizer_names()},
      });
  add_options(tool, fit_options());
  add_options(tool, hub_options());
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
  // Mapped, because files may be larger than memory.
  const Model model(path, {.mode = LoadMode::map, .weights = false});
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
    std::cout << inspect_text(model, options.flag("all"));
  }
  return 0;
}

int run(const Options& options) {
  const std::size_t models = options.positionals().size() + (options.given("model") ? 1 : 0) +
                             (options.given("hf-repo") ? 1 : 0);
  require(models > 0, kNoModel);
  require(models == 1, "'",
          printable(options.positionals().empty() ? "-hf" : options.positionals().back()),
          "': a model is given already; leave one out");
  require(options.has("tokenize") || !options.given("pretokenizer"),
          "--pretokenizer: needs --tokenize FILE");
  const bool needs_weights = options.flag("verify") || options.has("check-receipt");
  if (!options.has("tokenize")) return with_model_files(options, inspect, !needs_weights);
  Options named = options;
  if (!options.positionals().empty()) {
    named.set_text("model", path_of_model(named.take_positional()));
  }
  choose_model(named);
  EncodeOptions encode;
  encode.parse_special = options.flag("special");
  encode.add_bos = options.flag("bos");
  const std::string pretokenizer = options.has("pretokenizer") ? options.text("pretokenizer") : "";
  std::cout << tokenize_file(path_of_model(named.text("model")), options.text("tokenize"),
                             pretokenizer, encode);
  return 0;
}

}  // namespace
}  // namespace leq

const leq::Tool leq::kInspect = {"leq-inspect", leq::tool_spec, leq::run};
