#include "tools/bench/options.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "ranks/communicator.h"
#include "tools/common/device_choice.h"
#include "tools/common/kv_choice.h"
#include "tools/common/llama_flags.h"
#include "tools/common/model_options.h"
#include "tools/common/pull.h"

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
          .minimum = minimum,
          .maximum = maximum};
}

// Flags of llama.cpp's tools, and one of earlier versions.
std::span<const ForeignOption> foreign_flags() {
  static const std::vector<ForeignOption> kAll = [] {
    const std::span<const ForeignOption> llama = llama_flags();
    std::vector<ForeignOption> all(llama.begin(), llama.end());
    all.push_back({.words = "--offline"});
    all.push_back({"-hf -hfr --hf-repo -hff --hf-file -hft --hf-token", ForeignUse::refused,
                   "`leq pull NAME` downloads a model, and -m NAME names it here"});
    all.push_back({"--tp-plan", ForeignUse::refused,
                   "speeds of GPUs are no longer estimated; --tp 1,2 measures ranks"});
    return all;
  }();
  return kAll;
}

constexpr double kMaxPositions = 1 << 24;

std::vector<Option> model_rows() {
  return {
      {.name = "model",
       .spellings = "-m",
       .kind = OptionKind::list,
       .value_name = "FILE",
       .help =
           "a .leq file, or synthetic:SHAPE:TYPE with SHAPE gpt2-124m, llama-110m, "
           "tinyllama-1.1b, llama-7b, llama-13b, mistral-7b, qwen2.5-1.5b, qwen3-14b, "
           "qwen3.5-0.8b, qwen3.5-9b, qwen3.6-35b-a3b, qwen3-30b-a3b, mixtral-8x7b, ministral-8b, "
           "gemma-3-4b, gemma-4-12b, gemma-4-26b-a4b or gpt-oss-20b; may be given several times"},
      {.name = "mmap",
       .fallback = "auto",
       .help = "map the file into memory, or read it (default: read where mapping gives small "
               "pages and memory suffices)"},
      {.name = "write",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "no test: writes the synthetic model as a .leq file, to measure how files load; its "
               "context is the shape's or -d, if that is more"},
      {.name = "write-tokenizer",
       .kind = OptionKind::text,
       .value_name = "PATH",
       .help = "with --write: gives the file the tokenizer of this model folder or tokenizer file, "
               "so that it can be served"},
      {.name = "load",
       .help = "no test: seconds from opening each file to the logits of the first token, and the "
               "memory used"},
      {.name = "fusion",
       .help = "no test: milliseconds of a norm of 256 rows that writes codes, and of a norm and a "
               "pass after it that makes them, -r times"},
      {.name = "graph",
       .fallback = "true",
       .help = "on a GPU, launch the operations of each decode step one by one, not as a graph"},
  };
}

std::vector<Option> sweep_rows() {
  return {
      numbers("n-prompt", "-p", "512", "prompt tokens; 0: no such test", 0, kMaxPositions),
      numbers("n-gen", "-n", "128", "generated tokens; 0: no such test", 0, kMaxPositions),
      {.name = "pg",
       .spellings = "-pg",
       .kind = OptionKind::list,
       .value_name = "PP,TG",
       .help = "prefill, then decode, as one test; may be given several times"},
      numbers("n-depth", "-d", "0", "positions in the KV cache before each test", 0, kMaxPositions),
      numbers("n-parallel", "-npl", "1",
              "sequences that are decoded at the same time, one token of each per step", 1, 4096),
      numbers("threads", "-t", "0", "threads; 0: one per usable core", 0, 1024),
      numbers("tp", "", "1",
              "ranks that share the model and the threads (tensor parallelism), or the processes "
              "that mpirun started",
              1, ThreadRanks::kMaxRanks),
      numbers("batch-size", "-b", "2048", "maximum tokens per step", 1, 65536),
      numbers("ubatch-size", "-ub", "512",
              "the same limit under another name; the smaller of --batch-size and --ubatch-size "
              "applies",
              1, 65536),
      {.name = "cache-type-k",
       .spellings = "-ctk",
       .kind = OptionKind::text,
       .value_name = "T,...",
       .help = "type of the keys in the KV cache: " + kv_type_names(", ") +
               " (default f32 for models of type f32, else f16)",
       .synonyms = kv_synonyms()},
      {.name = "cache-type-v",
       .spellings = "-ctv",
       .kind = OptionKind::text,
       .value_name = "T,...",
       .help = "type of the values in the KV cache, likewise",
       .synonyms = kv_synonyms()},
  };
}

std::vector<Option> traffic_rows() {
  return {
      {.name = "arrivals",
       .kind = OptionKind::real,
       .value_name = "RATE",
       .help = "instead of a test: requests with -p prompt and -n reply tokens arrive at random "
               "times, on average RATE per second (0: all at once), and share -npl sequences; "
               "prints token latencies",
       .minimum = 0,
       .maximum = 1e6},
      {.name = "requests",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "64",
       .help = "with --arrivals: number of requests",
       .minimum = 1,
       .maximum = 1e6},
      {.name = "long-prompt",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "0",
       .help = "with --arrivals: one more request, with a prompt of N tokens, arrives when a "
               "quarter of all tokens is generated, to show its effect on the others",
       .minimum = 0,
       .maximum = 1e6},
      {.name = "seed",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "1",
       .help = "seed of prompts and arrival times",
       .minimum = 0,
       .maximum = 1e9},
  };
}

std::vector<Option> draft_rows() {
  return {
      {.name = "speculate",
       .help = "no test: replies of -n tokens without speculation, with draft tokens found in the "
               "text, and with those of a draft model, and the cost of a step of several tokens"},
      {.name = "model-draft",
       .spellings = "-md --spec-draft-model",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "draft model, a small one; a .leq file or synthetic:SHAPE:TYPE"},
      {.name = "draft-max",
       .spellings = "--draft --draft-n --spec-draft-n-max",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "16",
       .help = "maximum draft tokens per step",
       .minimum = 1,
       .maximum = 1024},
      {.name = "file",
       .spellings = "-f",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "prompt to continue, instead of three built-in ones"},
      {.name = "replay",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "use the last -n tokens of FILE as the reply, whatever the model samples: the "
               "speed on a real text, also of synthetic models"},
      {.name = "accept",
       .kind = OptionKind::real,
       .value_name = "SHARE",
       .fallback = "0.6",
       .help = "with --replay: this share of the draft model's tokens is accepted",
       .minimum = 0,
       .maximum = 1},
  };
}

std::vector<Option> output_rows() {
  return {
      {.name = "breakdown",
       .help = "milliseconds and bytes of a step by part (load, quant, gemm, attention, comm, "
               "sync, sample) instead of tokens per second"},
      {.name = "repetitions",
       .spellings = "-r",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "5",
       .help = "timed runs of each test, after a warm-up",
       .minimum = 1,
       .maximum = 10000},
      {.name = "output",
       .spellings = "-o",
       .kind = OptionKind::text,
       .value_name = "FORMAT",
       .fallback = "md",
       .help = "format of the table",
       .choices = {"md", "csv", "json"}},
  };
}

}  // namespace

ToolSpec tool_spec() {
  ToolSpec tool;
  tool.max_positionals = 1;  // the model
  tool.name = "leq-bench";
  tool.summary = "measures tokens per second and their share of what the machine can do";
  tool.usage = {"model.leq [-p 512] [-n 128] [-d 0] [-t 2] [-r 5] [-o md|csv|json]", "qwen3:0.6b",
                "-m synthetic:llama-7b:int8[:layers=N]",
                "-m synthetic:llama-7b:int4-g128 --write 7b.leq"};
  add_options(tool, in_group("Model", model_rows()));
  add_options(tool, in_group("Model", device_options()));
  add_options(tool, in_group("Sweeps (every combination of comma lists is run)", sweep_rows()));
  add_options(tool, in_group("Traffic", traffic_rows()));
  add_options(tool, in_group("Drafts", draft_rows()));
  add_options(tool, in_group("Output", output_rows()));
  add_options(tool, hub_options());
  add_options(tool, in_group("KV cache", kv_detail_options()));
  add_options(tool, in_group(kTuningGroup, device_tuning_options()));
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
