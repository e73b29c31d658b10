#include "tools/bench/options.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/text.h"
#include "tools/common/device_choice.h"
#include "tools/common/kv_choice.h"
#include "tools/common/llama_flags.h"
#include "tools/common/model_options.h"
#include "tools/common/rank_choice.h"

namespace leq {
namespace {

Option numbers(const char* name, const char* spelling, const char* fallback, const char* help,
               double minimum, double maximum) {
  return {.name = name,
          .spellings = spelling,
          .kind = OptionKind::integers,
          .value_name = "N,...",
          .fallback = fallback,
          .help = help,
          .group = "Sweeps (every combination of comma lists is run)",
          .minimum = minimum,
          .maximum = maximum};
}

Option kv_types(const char* name, const char* spelling, std::string help) {
  return {.name = name,
          .spellings = spelling,
          .kind = OptionKind::text,
          .value_name = "T,...",
          .help = std::move(help),
          .group = "Sweeps (every combination of comma lists is run)"};
}

// Flags of llama.cpp's tools, and one of earlier versions.
std::span<const ForeignOption> foreign_flags() {
  static const std::vector<ForeignOption> kAll = [] {
    const std::span<const ForeignOption> llama = llama_flags();
    std::vector<ForeignOption> all(llama.begin(), llama.end());
    all.push_back({"--tp-plan", ForeignUse::refused,
                   "speeds of GPUs are no longer estimated; --tp 1,2 measures ranks"});
    return all;
  }();
  return kAll;
}

}  // namespace

ToolSpec tool_spec() {
  constexpr double kMostPositions = 1 << 24;
  ToolSpec tool;
  tool.name = "leq-bench";
  tool.summary = "measures tokens per second and their share of what the machine can do";
  tool.usage = {"-m model.leq [-p 512] [-n 128] [-d 0] [-t 2] [-r 5] [-o md|csv|json]",
                "-m synthetic:llama-7b:int8[:layers=N]",
                "-m synthetic:llama-7b:int4-g128 --write 7b.leq"};
  tool.options = {
      {.name = "model",
       .spellings = "-m",
       .kind = OptionKind::list,
       .value_name = "FILE",
       .help = "a .leq file, or synthetic:SHAPE:TYPE with SHAPE gpt2-124m, llama-110m, "
               "tinyllama-1.1b, llama-7b, llama-13b, mistral-7b, qwen2.5-1.5b, qwen3-14b, "
               "qwen3.5-0.8b, qwen3.5-9b, qwen3.6-35b-a3b, qwen3-30b-a3b, mixtral-8x7b or "
               "ministral-8b; may be given several times",
       .group = "Model"},
      {.name = "mmap",
       .fallback = "auto",
       .help = "use the file where it is mapped, or read it into memory (default: read where small "
               "pages would slow it and memory allows)",
       .group = "Model"},
      numbers("n-prompt", "-p", "512", "prompt tokens; 0: no such test", 0, kMostPositions),
      numbers("n-gen", "-n", "128", "generated tokens; 0: no such test", 0, kMostPositions),
      {.name = "pg",
       .spellings = "-pg",
       .kind = OptionKind::list,
       .value_name = "PP,TG",
       .help = "a prompt and then generated tokens, as one test; may be given several times",
       .group = "Sweeps (every combination of comma lists is run)"},
      numbers("n-depth", "-d", "0", "positions in the KV cache before each test", 0,
              kMostPositions),
      numbers("n-parallel", "-npl", "1",
              "sequences that generate at the same time, one token of each in a step", 1, 4096),
      numbers("threads", "-t", "0", "threads; 0: one for each usable core", 0, 1024),
      numbers("tp", "", "1",
              "ranks that share the model and the threads (tensor parallelism), or the processes "
              "that mpirun started",
              1, ThreadRanks::kMaxRanks),
      numbers("batch-size", "-b", "2048", "most tokens in one step", 1, 65536),
      numbers("ubatch-size", "-ub", "512",
              "the same limit under another name; the smaller of --batch-size and --ubatch-size "
              "applies",
              1, 65536),
      kv_types("cache-type-k", "-ctk",
               "keys in the KV cache: " + kv_type_names(", ") +
                   " (default f32 for models of type f32, else f16)"),
      kv_types("cache-type-v", "-ctv", "values in the KV cache, likewise"),
      {.name = "write",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "no test: writes the synthetic model as a .leq file, to measure how files load; its "
               "context is the shape's or -d, if that is more",
       .group = "Model"},
      {.name = "write-tokenizer",
       .kind = OptionKind::text,
       .value_name = "PATH",
       .help = "with --write: gives the file the tokenizer of this model folder or tokenizer file, "
               "so that it can be served",
       .group = "Model"},
      {.name = "load",
       .help = "no test: seconds from opening each file to the logits of a first token, and the "
               "memory that takes",
       .group = "Model"},
      {.name = "fusion",
       .help = "no test: milliseconds of a norm of 256 rows that writes codes, and of a norm and a "
               "pass after it that makes them, -r times",
       .group = "Model"},
      {.name = "arrivals",
       .kind = OptionKind::real,
       .value_name = "RATE",
       .help = "instead of a test: requests with -p prompt and -n reply tokens arrive at random "
               "times, on average RATE per second (0: all at once), and share -npl sequences; "
               "prints token latencies",
       .group = "Traffic",
       .minimum = 0,
       .maximum = 1e6},
      {.name = "speculate",
       .help = "no test: replies of -n tokens without draft tokens, with draft tokens found in the "
               "text, and "
               "with those of a draft model, and what a step of several tokens costs",
       .group = "Drafts"},
      {.name = "model-draft",
       .spellings = "-md --spec-draft-model",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "a small model that writes draft tokens; a .leq file or synthetic:SHAPE:TYPE",
       .group = "Drafts"},
      {.name = "draft-max",
       .spellings = "--draft --draft-n --spec-draft-n-max",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "16",
       .help = "maximum draft tokens per step",
       .group = "Drafts",
       .minimum = 1,
       .maximum = 1024},
      {.name = "file",
       .spellings = "-f",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "the text that replies go on with, in place of three built-in ones",
       .group = "Drafts"},
      {.name = "replay",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "the last -n tokens of FILE are taken for the reply, whatever the model draws: the "
               "speed on a real text, also of synthetic models",
       .group = "Drafts"},
      {.name = "accept",
       .kind = OptionKind::real,
       .value_name = "SHARE",
       .fallback = "0.6",
       .help = "with --replay: this share of the draft model's tokens is accepted",
       .group = "Drafts",
       .minimum = 0,
       .maximum = 1},
      {.name = "requests",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "64",
       .help = "with --arrivals: number of requests",
       .group = "Traffic",
       .minimum = 1,
       .maximum = 1e6},
      {.name = "long-prompt",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "0",
       .help = "with --arrivals: one more request, with a prompt of N tokens, arrives when a "
               "quarter of all tokens is generated, to show its effect on the others",
       .group = "Traffic",
       .minimum = 0,
       .maximum = 1e6},
      {.name = "seed",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "1",
       .help = "seed of prompts and arrival times",
       .group = "Traffic",
       .minimum = 0,
       .maximum = 1e9},
      {.name = "graph",
       .fallback = "true",
       .help = "on a GPU, launch the operations of generation one by one, not as a graph",
       .group = "Model"},
      {.name = "breakdown",
       .help = "milliseconds and bytes of a step by part (load, quant, gemm, attention, comm, "
               "sync, sample) instead of tokens per second",
       .group = "Output"},
      {.name = "repetitions",
       .spellings = "-r",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "5",
       .help = "timed runs of each test, after one that is not",
       .group = "Output",
       .minimum = 1,
       .maximum = 10000},
      {.name = "output",
       .spellings = "-o",
       .kind = OptionKind::text,
       .value_name = "FORMAT",
       .fallback = "md",
       .help = "how rows are printed",
       .group = "Output",
       .choices = {"md", "csv", "json"}},
  };
  for (Option& option : kv_detail_options("KV cache")) tool.options.push_back(std::move(option));
  for (Option& option : device_options("Model")) tool.options.push_back(std::move(option));
  tool.foreign = foreign_flags();
  tool.answers.push_back(list_devices_answer());
  return tool;
}

std::vector<BenchTest> tests_of(const Options& options) {
  std::vector<BenchTest> tests;
  for (const std::int64_t depth : options.integers("n-depth")) {
    for (const std::int64_t prompt : options.integers("n-prompt")) {
      if (prompt > 0) tests.push_back({prompt, 0, depth});
    }
    for (const std::int64_t generated : options.integers("n-gen")) {
      if (generated == 0) continue;
      for (const std::int64_t sequences : options.integers("n-parallel")) {
        tests.push_back({0, generated, depth, static_cast<int>(sequences)});
      }
    }
    for (const std::string& pair : options.list("pg")) {
      const auto parts = split(pair, ",");
      const std::int64_t prompt = parts.size() == 2 ? parse_int(parts[0]).value_or(0) : 0;
      const std::int64_t generated = parts.size() == 2 ? parse_int(parts[1]).value_or(0) : 0;
      require(prompt > 0 && generated > 0,
              "-pg: expected two numbers of at least 1 as in 512,128, ", "found '", printable(pair),
              "'");
      tests.push_back({prompt, generated, depth});
    }
  }
  require(!tests.empty(), "-p 0 -n 0: no test is left; give -p, -n or -pg a number above 0");
  return tests;
}

namespace {

std::vector<std::optional<KvType>> kv_types_of(const Options& options, const char* name,
                                               Setting setting) {
  if (!options.has(name)) return {std::nullopt};
  std::vector<std::optional<KvType>> types;
  for (const auto type : split(options.text(name), ",")) {
    types.push_back(parse_kv_type(trim(type), setting));
  }
  return types;
}

}  // namespace

std::vector<RunSetting> settings_of(const Options& options) {
  std::vector<RunSetting> settings;
  for (const std::int64_t threads : options.integers("threads")) {
    for (const std::int64_t batch : options.integers("batch-size")) {
      for (const std::int64_t ubatch : options.integers("ubatch-size")) {
        for (const auto keys : kv_types_of(options, "cache-type-k", Setting{"key_type"})) {
          for (const auto values : kv_types_of(options, "cache-type-v", Setting{"value_type"})) {
            const int count = threads_for(static_cast<int>(threads), numa_mode(options));
            for (const std::int64_t ranks : options.integers("tp")) {
              settings.push_back(
                  {count, static_cast<int>(ranks), std::min(batch, ubatch), keys, values});
            }
          }
        }
      }
    }
  }
  return settings;
}

LoadMode load_mode(const Options& options) {
  if (!options.has("mmap")) return LoadMode::automatic;
  return options.flag("mmap") ? LoadMode::map : LoadMode::read;
}

}  // namespace leq
