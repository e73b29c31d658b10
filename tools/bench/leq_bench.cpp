// leq-bench: tokens per second in llama-bench's rows, each beside the limit of this machine.
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "base/file.h"
#include "base/progress.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "engine/draft_model.h"
#include "engine/engine.h"
#include "eval/limits/limits.h"
#include "model/tensor_list.h"
#include "tools/bench/breakdown.h"
#include "tools/bench/load.h"
#include "tools/bench/model.h"
#include "tools/bench/speculate.h"
#include "tools/bench/table.h"
#include "tools/bench/traffic.h"
#include "tools/bench/write_synthetic.h"
#include "tools/common/device_choice.h"
#include "tools/common/llama_flags.h"
#include "tools/common/model_options.h"
#include "tools/common/model_path.h"

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

ToolSpec tool_spec() {
  constexpr double kMostTokens = 1 << 24;
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
               "tinyllama-1.1b, llama-7b, llama-13b, mistral-7b, qwen2.5-1.5b or qwen3-14b; may be "
               "given several times",
       .group = "Model"},
      {.name = "mmap",
       .fallback = "auto",
       .help = "use the file where it is mapped, or read it into memory (default: read where small "
               "pages would slow it and memory allows)",
       .group = "Model"},
      numbers("n-prompt", "-p", "512", "prompt tokens; 0: no such test", 0, kMostTokens),
      numbers("n-gen", "-n", "128", "generated tokens; 0: no such test", 0, kMostTokens),
      {.name = "pg",
       .spellings = "-pg",
       .kind = OptionKind::list,
       .value_name = "PP,TG",
       .help = "a prompt and then generated tokens, as one test; may be given several times",
       .group = "Sweeps (every combination of comma lists is run)"},
      numbers("n-depth", "-d", "0", "positions in the KV cache before each test", 0, kMostTokens),
      numbers("n-parallel", "-npl", "1",
              "sequences that generate at the same time, one token of each in a step", 1, 4096),
      numbers("threads", "-t", "0", "threads; 0: one for each usable core", 0, 1024),
      numbers("batch-size", "-b", "2048", "most tokens in one step", 1, 65536),
      numbers("ubatch-size", "-ub", "512", "the same; the smaller of the two counts", 1, 65536),
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
      {.name = "arrivals",
       .kind = OptionKind::real,
       .value_name = "RATE",
       .help =
           "no test: requests of -p and -n tokens that arrive at random, so many a second (0: all "
           "at once), written by -npl sequences of the engine; prints times to tokens",
       .group = "Traffic",
       .minimum = 0,
       .maximum = 1e6},
      {.name = "speculate",
       .help = "no test: replies of -n tokens without guesses, with guesses found in the text, and "
               "with those of a draft model, and what a step of several tokens costs",
       .group = "Guesses"},
      {.name = "model-draft",
       .spellings = "-md --spec-draft-model",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "a small model that guesses; a .leq file or synthetic:SHAPE:TYPE",
       .group = "Guesses"},
      {.name = "draft-max",
       .spellings = "--draft --draft-n --spec-draft-n-max",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "16",
       .help = "most guesses in one step",
       .group = "Guesses",
       .minimum = 1,
       .maximum = 1024},
      {.name = "file",
       .spellings = "-f",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "the text that replies go on with, in place of three built-in ones",
       .group = "Guesses"},
      {.name = "replay",
       .kind = OptionKind::text,
       .value_name = "FILE",
       .help = "the last -n tokens of FILE are taken for the reply, whatever the model draws: the "
               "speed on a real text, also of synthetic models",
       .group = "Guesses"},
      {.name = "accept",
       .kind = OptionKind::real,
       .value_name = "SHARE",
       .fallback = "0.6",
       .help = "with --replay: so many of the draft model's guesses are right",
       .group = "Guesses",
       .minimum = 0,
       .maximum = 1},
      {.name = "requests",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "64",
       .help = "how many of them",
       .group = "Traffic",
       .minimum = 1,
       .maximum = 1e6},
      {.name = "long-prompt",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "0",
       .help = "one more request, with a prompt of N tokens, comes when a quarter of all tokens is "
               "written: what that does to the others",
       .group = "Traffic",
       .minimum = 0,
       .maximum = 1e6},
      {.name = "seed",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "1",
       .help = "of prompts and arrivals",
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
  for (Option& option : device_options("Model")) tool.options.push_back(std::move(option));
  tool.foreign = llama_flags();
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

// One combination of what is not a test.
struct RunSetting {
  int threads = 0;
  std::int64_t batch_tokens = 0;
  std::optional<KvType> key_type, value_type;  // nullopt = the model's default
};

std::vector<std::optional<KvType>> kv_types_of(const Options& options, const char* name,
                                               Setting setting) {
  if (!options.has(name)) return {std::nullopt};
  std::vector<std::optional<KvType>> types;
  for (const auto type : split(options.text(name), ",")) {
    types.push_back(parse_kv_type(trim(type), setting));
  }
  return types;
}

std::vector<RunSetting> settings_of(const Options& options) {
  std::vector<RunSetting> settings;
  for (const std::int64_t threads : options.integers("threads")) {
    for (const std::int64_t batch : options.integers("batch-size")) {
      for (const std::int64_t ubatch : options.integers("ubatch-size")) {
        for (const auto keys : kv_types_of(options, "cache-type-k", Setting{"key_type"})) {
          for (const auto values : kv_types_of(options, "cache-type-v", Setting{"value_type"})) {
            const int count = threads_for(static_cast<int>(threads), numa_mode(options));
            settings.push_back({count, std::min(batch, ubatch), keys, values});
          }
        }
      }
    }
  }
  return settings;
}

// Of each sequence.
std::int64_t positions(const BenchTest& test) { return round_up(test.positions(), kPageTokens); }

LoadMode load_mode(const Options& options) {
  if (!options.has("mmap")) return LoadMode::automatic;
  return options.flag("mmap") ? LoadMode::map : LoadMode::read;
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        tests_(tests_of(options)),
        settings_(settings_of(options)),
        runs_(static_cast<int>(options.integer("repetitions"))),
        mode_(load_mode(options)),
        breakdown_(options.flag("breakdown")),
        for_people_(options.text("output") == "md") {
    columns_.batch = options.given("batch-size") || options.given("ubatch-size");
    columns_.kv_types = options.given("cache-type-k") || options.given("cache-type-v");
  }

  void run(const std::string& model_name) {
    std::int64_t context = 0;
    for (const BenchTest& test : tests_) context = std::max(context, positions(test));
    const BenchModel model(model_name, mode_, context);
    require(context <= round_up(model.config().context, kPageTokens), model_name, ": a test needs ",
            context, " positions, the model has ", model.config().context, "; lower -d, -p or -n");
    check_gpu_layers(options_, model.config().layers);
    for (const RunSetting& setting : settings_) {
      const auto backend = chosen_backend(options_, setting.threads);
      backend->record_steps(options_.flag("graph"));
      for (const BenchTest& test : tests_) {
        Session session = make_session(model, *backend, setting, test);
        if (breakdown_) {
          divide(model, session, test);
        } else {
          rows_.push_back(measure(model, model_name, session, setting, test));
        }
      }
    }
  }

  Table table() const {
    if (breakdown_) return parts_;
    Table table;
    for (const BenchRow& row : rows_) {
      table.add(for_people_ ? people_row(row, columns_) : script_row(row, columns_));
    }
    return table;
  }

 private:
  static Session make_session(const BenchModel& model, Backend& backend, const RunSetting& setting,
                              const BenchTest& test) {
    const KvType fallback = default_kv_type(model.scheme());
    RunLimits limits;
    limits.sequences = test.sequences;
    limits.context = std::min(positions(test), model.config().context) * test.sequences;
    limits.batch_tokens = std::max<std::int64_t>(setting.batch_tokens, test.sequences);
    limits.output_tokens = test.sequences;
    limits.key_type = setting.key_type.value_or(fallback);
    limits.value_type = setting.value_type.value_or(fallback);
    return model.make_session(backend, limits);
  }

  void divide(const BenchModel& model, Session& session, const BenchTest& test) {
    Progress progress(model.name() + " " + model.scheme() + " " + bench_test_name(test), runs_,
                      "runs");
    const Breakdown breakdown =
        break_down(session, test, runs_, [&](int done) { progress.update(done); });
    add_breakdown({{"model", model.name() + " " + model.scheme()},
                   {"backend", session.transformer().backend().name()},
                   {"test", test_title(test)}},
                  breakdown, for_people_, parts_);
  }

  BenchRow measure(const BenchModel& model, const std::string& typed, Session& session,
                   const RunSetting& setting, const BenchTest& test) {
    const BenchWork work = bench_work(session, test);
    Backend& backend = session.transformer().backend();
    const MachineLimits before = limits_now(backend, setting.threads, test, work);
    std::vector<double> seconds;
    {
      Progress progress(model.name() + " " + model.scheme() + " " + bench_test_name(test), runs_,
                        "runs");
      seconds = time_bench_test(session, test, runs_, [&](int done) { progress.update(done); });
    }
    // A limit is the best that was seen: neighbours on the machine can spoil one measurement.
    MachineLimits machine = limits_now(backend, setting.threads, test, work);
    machine.read_gbps = std::max(machine.read_gbps, before.read_gbps);
    machine.compute_gops = std::max(machine.compute_gops, before.compute_gops);
    machine.head_gops = std::max(machine.head_gops, before.head_gops);
    BenchRow row;
    row.model = typed;
    row.title = model.name() + " " + model.scheme();
    row.scheme = model.scheme();
    row.size_bytes = model.weight_bytes();
    row.parameters = parameter_count(model.config());
    row.backend = backend.name();
    row.threads = setting.threads;
    row.batch_tokens = setting.batch_tokens;
    row.key_type = session.limits().key_type;
    row.value_type = session.limits().value_type;
    row.test = test;
    row.runs = runs_;
    row.bytes_per_token = work.bytes_per_token();
    row.numbers = bench_numbers(test, work, seconds, machine);
    return row;
  }

  // The limits that a test is held against; those of a GPU are not measured here.
  MachineLimits limits_now(Backend& backend, int threads, const BenchTest& test,
                           const BenchWork& work) {
    if (backend.memory().room()) return {};
    cpu::LimitMeter& meter = meters_.try_emplace(threads, threads, chosen_isa()).first->second;
    MachineLimits limits;
    if (test.prompt > 0 || test.sequences > 1) {
      const int bits = work.block_bits;
      limits.compute_gops = bits == 0 ? meter.f32_gflops() : meter.int_gops(bits);
      limits.compute_kind = bits == 0 ? meter.f32_name() : meter.int_name(bits);
    }
    if (test.sequences > 1) {
      limits.head_gops = work.head_bits == 0 ? meter.f32_gflops() : meter.int_gops(work.head_bits);
    }
    if (test.generated > 0) limits.read_gbps = meter.read_gbps(work.bytes_per_token());
    return limits;
  }

  const Options& options_;
  std::vector<BenchTest> tests_;
  std::vector<RunSetting> settings_;
  std::map<int, cpu::LimitMeter> meters_;  // by threads
  int runs_;
  LoadMode mode_;
  bool breakdown_;
  bool for_people_;
  BenchColumns columns_;
  std::vector<BenchRow> rows_;
  Table parts_;  // --breakdown
};

void print(const Table& table, const std::string& format) {
  if (format == "md") std::cerr << cpu_model_name() << '\n';
  std::cout << (format == "md"    ? table.markdown()
                : format == "csv" ? table.csv()
                                  : table.json() + "\n");
}

Session traffic_session(const BenchModel& model, Backend& backend, const RunSetting& setting,
                        std::int64_t sequences, std::int64_t each) {
  constexpr std::int64_t kGuessedRows = 16;
  const KvType fallback = default_kv_type(model.scheme());
  RunLimits limits;
  limits.sequences = static_cast<int>(sequences);
  limits.context = each * sequences;
  limits.batch_tokens = std::max(setting.batch_tokens, sequences);
  limits.output_tokens = sequences + kGuessedRows;
  limits.key_type = setting.key_type.value_or(fallback);
  limits.value_type = setting.value_type.value_or(fallback);
  return model.make_session(backend, limits);
}

Table load_table(const Options& options) {
  Table table;
  for (const std::string& model : options.list("model")) {
    require(!is_synthetic(model), "--load: expected a .leq file, found ", printable(model),
            "; make one with --write FILE");
    check_model_file("-m", model);
    for (const std::int64_t threads : options.integers("threads")) {
      const int count = threads_for(static_cast<int>(threads), numa_mode(options));
      const int runs = static_cast<int>(options.integer("repetitions"));
      table.add(bench_load(model, load_mode(options), count, runs));
    }
  }
  return table;
}

// A row for each combination of sequences, prompts and replies.
Table traffic_table(const Options& options) {
  Table table;
  for (const std::string& name : options.list("model")) {
    for (const RunSetting& setting : settings_of(options)) {
      for (const std::int64_t sequences : options.integers("n-parallel")) {
        for (const std::int64_t prompt : options.integers("n-prompt")) {
          for (const std::int64_t reply : options.integers("n-gen")) {
            require(prompt > 0 && reply > 0, "--arrivals: -p and -n must be 1 or more");
            const Traffic traffic = {.per_second = options.real("arrivals"),
                                     .requests = options.integer("requests"),
                                     .prompt = prompt,
                                     .reply = reply,
                                     .long_prompt = options.integer("long-prompt"),
                                     .seed = static_cast<std::uint64_t>(options.integer("seed"))};
            const std::int64_t each =
                round_up(std::max(prompt, traffic.long_prompt) + reply + 1, kPageTokens);
            const BenchModel model(name, load_mode(options), each);
            const auto backend = chosen_backend(options, setting.threads);
            Session session = traffic_session(model, *backend, setting, sequences, each);
            table.add(bench_traffic(model, session, traffic));
          }
        }
      }
    }
  }
  return table;
}

// The text of -f or --replay as the model's tokens.
std::vector<Token> tokens_of(const std::string& path, const BenchModel& model) {
  constexpr std::uint64_t kMostBytes = 16 << 20;
  const std::string text = read_text_file(path, kMostBytes);
  const Tokenizer* tokenizer = model.tokenizer();
  if (tokenizer == nullptr) return numbered_words(text, model.config().vocab);
  return tokenizer->encode(text, {.add_bos = tokenizer->add_bos()});
}

SpeculationTest speculation_of(const Options& options, const BenchModel& model) {
  SpeculationTest test;
  test.reply = options.integers("n-gen")[0];
  test.most_guesses = std::min(options.integer("draft-max"), kMostGuesses);
  test.draft_share = options.real("accept");
  test.runs = static_cast<int>(options.integer("repetitions"));
  test.seed = static_cast<std::uint64_t>(options.integer("seed"));
  require(test.reply > 1, "-n ", test.reply, ": expected replies of 2 tokens or more");
  if (options.given("replay")) {
    const std::string& path = options.text("replay");
    SpeculationText text = {path, tokens_of(path, model), {}};
    require(std::ssize(text.prompt) > test.reply, "--replay ", printable(path), ": it has ",
            text.prompt.size(), " tokens, expected more than the ", test.reply,
            " of the reply; lower -n");
    const auto reply = text.prompt.end() - test.reply;
    text.replayed.assign(reply, text.prompt.end());
    text.prompt.erase(reply, text.prompt.end());
    const std::int64_t most = options.integers("n-prompt")[0];
    if (std::ssize(text.prompt) > most && most > 0) {
      text.prompt.erase(text.prompt.begin(), text.prompt.end() - most);
    }
    test.texts = {text};
    return test;
  }
  require(model.tokenizer() != nullptr, "--speculate: ", model.name(),
          " has no tokenizer and writes no text: give one with --replay FILE");
  if (options.given("file")) {
    test.texts = {{options.text("file"), tokens_of(options.text("file"), model), {}}};
  } else {
    test.texts = built_in_texts(*model.tokenizer());
  }
  return test;
}

Table speculation_table(const Options& options) {
  Table table;
  for (const std::string& name : options.list("model")) {
    for (const RunSetting& setting : settings_of(options)) {
      constexpr std::int64_t kSyntheticContext = 8192;
      const BenchModel model(name, load_mode(options), kSyntheticContext);
      const SpeculationTest test = speculation_of(options, model);
      const KvType fallback = default_kv_type(model.scheme());
      RunLimits limits;
      limits.batch_tokens = setting.batch_tokens;
      limits.key_type = setting.key_type.value_or(fallback);
      limits.value_type = setting.value_type.value_or(fallback);
      const auto backend = chosen_backend(options, setting.threads);
      Session session = model.make_session(*backend, speculation_limits(test, limits));
      std::optional<BenchModel> draft;
      std::unique_ptr<Session> draft_session;  // built in place: its parts refer to each other
      if (options.given("model-draft")) {
        draft.emplace(options.text("model-draft"), load_mode(options), kSyntheticContext);
        if (model.tokenizer() != nullptr && draft->tokenizer() != nullptr) {
          require_same_vocabulary(*model.tokenizer(), model.name(), *draft->tokenizer(),
                                  draft->name());
        }
        draft_session.reset(new Session(
            draft->make_session(*backend, draft_limits(session.limits(), draft->config()))));
      }
      bench_speculation(model, session, draft ? draft->name() + " " + draft->scheme() : "",
                        draft_session.get(), test, table);
    }
  }
  return table;
}

int run(const Options& options) {
  const std::string& format = options.text("output");
  require(!options.list("model").empty(), "-m: missing; give a .leq file or synthetic:SHAPE:TYPE");
  if (options.has("write")) {
    write_synthetic(options);
    return 0;
  }
  require(!options.given("write-tokenizer"),
          "--write-tokenizer: is for --write, which is not there");
  if (options.flag("load")) {
    require(device_name(options) == "cpu", "--load: measures loading for the CPU; leave out -dev,",
            " leq-run -v prints the speed of an upload");
    print(load_table(options), format);
    return 0;
  }
  for (const std::string& model : options.list("model")) {
    if (!is_synthetic(model)) check_model_file("-m", model);  // before the others are measured
  }
  if (options.given("arrivals")) {
    print(traffic_table(options), format);
    return 0;
  }
  if (options.flag("speculate")) {
    print(speculation_table(options), format);
    return 0;
  }
  for (const char* flag : {"model-draft", "file", "replay"}) {
    require(!options.given(flag), "--", flag, ": is for --speculate, which is not there");
  }
  Bench bench(options);
  for (const std::string& model : options.list("model")) bench.run(model);
  print(bench.table(), format);
  return 0;
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) {
  return leq::run_tool("leq-bench", leq::tool_spec, argc, argv, leq::run);
}
