// leq-bench: tokens per second in rows like llama-bench's, each with the limit set by this machine.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
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
#include "engine/engine.h"
#include "engine/speculation.h"
#include "model/linear_sites.h"
#include "model/ranks.h"
#include "ranks/communicator.h"
#include "runtime/runtime.h"
#include "tools/bench/model.h"
#include "tools/bench/modes.h"
#include "tools/bench/options.h"
#include "tools/bench/parts/limits.h"
#include "tools/bench/speculate.h"
#include "tools/bench/table.h"
#include "tools/bench/traffic.h"
#include "tools/common/device_choice.h"
#include "tools/common/kv_choice.h"
#include "tools/common/mains.h"
#include "tools/common/model_file.h"
#include "tools/common/model_options.h"

namespace leq {
namespace {

// Sets the KV types of the setting and the details of the cache that the options give.
void choose_cache(const Options& options, const RunSetting& setting, const BenchModel& model,
                  RunLimits& limits) {
  const KvType fallback = default_kv_type(model.scheme());
  limits.key_type = setting.key_type.value_or(fallback);
  limits.value_type = setting.value_type.value_or(fallback);
  choose_kv_details(options, limits);
}

bool names_cache(const Options& options) {
  const auto given = [&](const Option& option) { return options.given(option.name); };
  return std::ranges::any_of(kv_options(), given);
}

// Returns the number of positions per sequence.
std::int64_t positions(const BenchTest& test) { return round_up(test.positions(), kPageTokens); }

// The share of the machine's cores that other programs used since this object was made, from
// /proc/stat: with them, speeds are those of a busy machine.
class OtherLoad {
 public:
  // A line on stderr if it was above a tenth.
  void warn() const {
    const Seconds now = seconds();
    const double all = now.all - begin_.all,
                 others = now.busy - begin_.busy - (now.own - begin_.own);
    if (all <= 0 || others < 0.1 * all) return;
    std::cerr << "other programs used " << fixed(100 * others / all, 0)
              << " % of the cores: an idle machine is faster\n";
  }

 private:
  struct Seconds {
    double all = 0, busy = 0, own = 0;  // of all cores
  };
  static Seconds seconds() {
    Seconds found;
    std::ifstream file("/proc/stat");
    std::string word;
    file >> word;
    // user, nice, system, idle, iowait, irq, softirq, steal
    for (int column = 0; column < 8; ++column) {
      double ticks = 0;
      file >> ticks;
      ticks /= static_cast<double>(sysconf(_SC_CLK_TCK));
      found.all += ticks;
      if (column != 3 && column != 4) found.busy += ticks;
    }
    rusage own = {};
    getrusage(RUSAGE_SELF, &own);
    for (const timeval& time : {own.ru_utime, own.ru_stime}) {
      found.own += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    }
    return found;
  }
  Seconds begin_ = seconds();
};

class Bench {
 public:
  // `processes` are the ranks started by mpirun; null without mpirun.
  Bench(const Options& options, Communicator* processes)
      : options_(options),
        processes_(processes),
        tests_(tests_of(options)),
        settings_(settings_of(options)),
        runs_(static_cast<int>(options.integer("repetitions"))),
        mode_(load_mode(options)),
        breakdown_(options.flag("breakdown")),
        as_text_(options.text("output") == "md") {
    columns_.batch = options.given("batch-size") || options.given("ubatch-size");
    columns_.ranks = options.given("tp");
    columns_.kv_types = names_cache(options);
  }

  void run(const std::string& model_name) {
    std::int64_t context = 0;
    for (const BenchTest& test : tests_) context = std::max(context, positions(test));
    const BenchModel model(model_name, mode_, context);
    require(context <= round_up(model.config().context, kPageTokens), model_name, ": a test needs ",
            context, " positions, the model has ", model.config().context, "; lower -d, -p or -n");
    check_gpu_layers(options_, model.config().layer_count());
    for (const RunSetting& setting : settings_) {
      const int place = processes_ == nullptr ? 0 : mpi_local_rank();
      const DeviceOptions device = device_options(options_, threads_of_leader(setting));
      std::unique_ptr<Backend> backend;
      naming_gpu_layers(options_, [&] { backend = rank_backend(device, place, setting.ranks); });
      backend->record_steps(options_.flag("graph"));
      for (const BenchTest& test : tests_) run(model, model_name, *backend, setting, test);
    }
  }

  Table table() const {
    if (breakdown_) return parts_;
    Table table;
    for (const BenchRow& row : rows_) {
      table.add(as_text_ ? readable_row(row, columns_) : script_row(row, columns_));
    }
    return table;
  }

 private:
  // `-t` counts threads per process, so ranks that are threads of one process share them.
  int threads_of_leader(const RunSetting& setting) const {
    return processes_ == nullptr ? threads_of_rank(setting.threads, 0, setting.ranks)
                                 : setting.threads;
  }

  void run(const BenchModel& model, const std::string& typed, Backend& backend,
           const RunSetting& setting, const BenchTest& test) {
    const RunLimits limits = limits_of(model, setting, test);
    if (processes_ != nullptr && !processes_->leads()) {
      model.follow(backend, limits, *processes_);
      return;
    }
    std::optional<BenchWork> whole;  // for one rank; several ranks divide it
    if (setting.ranks > 1) {
      Session alone = model.make_session(backend, limits);
      whole = bench_work(alone, test);
    }
    std::unique_ptr<ThreadFollowers> followers;
    if (setting.ranks > 1 && processes_ == nullptr) {
      const DeviceOptions device = device_options(options_, setting.threads);
      followers = model.followers(follower_backends(device, setting.ranks, options_.flag("graph")),
                                  limits, thread_rank_options(setting.threads, setting.ranks));
    }
    Communicator& ranks = processes_ != nullptr  ? *processes_
                          : followers != nullptr ? followers->leader()
                                                 : one_rank();
    Session session = model.make_session(backend, limits, ranks);
    if (breakdown_) {
      divide(model, session, test);
      return;
    }
    const BenchWork work = whole ? *whole : bench_work(session, test);
    rows_.push_back(measure(model, typed, session, work, setting, test));
  }

  RunLimits limits_of(const BenchModel& model, const RunSetting& setting,
                      const BenchTest& test) const {
    RunLimits limits;
    limits.sequences = test.sequences;
    limits.context = std::min(positions(test), model.config().context) * test.sequences;
    limits.batch_tokens = std::max<std::int64_t>(setting.batch_tokens, test.sequences);
    limits.output_tokens = test.sequences;
    choose_cache(options_, setting, model, limits);
    return limits;
  }

  void divide(const BenchModel& model, Session& session, const BenchTest& test) {
    Progress progress(model.name() + " " + model.scheme() + " " + bench_test_name(test), runs_,
                      "runs");
    const Breakdown breakdown =
        break_down(session, test, runs_, [&](int done) { progress.update(done); });
    add_breakdown({{"model", model.name() + " " + model.scheme()},
                   {"backend", session.transformer().backend().name()},
                   {"test", test_title(test)}},
                  breakdown, as_text_, parts_);
  }

  BenchRow measure(const BenchModel& model, const std::string& typed, Session& session,
                   const BenchWork& work, const RunSetting& setting, const BenchTest& test) {
    Backend& backend = session.transformer().backend();
    std::vector<BenchRun> runs;
    {
      Progress progress(model.name() + " " + model.scheme() + " " + bench_test_name(test), runs_,
                        "runs");
      runs = time_bench_test(
          session, test, runs_, [&] { return limits_now(backend, setting.threads, test, work); },
          [&](int done) { progress.update(done); });
    }
    BenchRow row;
    row.model = typed;
    row.title = model.name() + " " + model.scheme();
    row.scheme = model.scheme();
    row.size_bytes = model.weight_bytes();
    row.parameters = parameter_count(model.config());
    row.backend = backend.name();
    row.threads = setting.threads;
    row.ranks = setting.ranks;
    row.batch_tokens = setting.batch_tokens;
    row.key_type = session.limits().key_type;
    row.value_type = session.limits().value_type;
    row.test = test;
    row.runs = runs_;
    row.bytes_per_token = work.bytes_per_token();
    row.numbers = bench_numbers(test, work, runs);
    return row;
  }

  // Returns the machine's limits for a test. The limits of a GPU, or of several machines, are not
  // measured.
  MachineLimits limits_now(Backend& backend, int threads, const BenchTest& test,
                           const BenchWork& work) {
    if (backend.memory().info() || processes_ != nullptr) return {};
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
  Communicator* processes_;
  std::vector<BenchTest> tests_;
  std::vector<RunSetting> settings_;
  std::map<int, cpu::LimitMeter> meters_;  // by number of threads
  int runs_;
  LoadMode mode_;
  bool breakdown_;
  bool as_text_;
  BenchColumns columns_;
  std::vector<BenchRow> rows_;
  Table parts_;  // rows of --breakdown
};

void print(const Table& table, const std::string& format) {
  if (format == "md") std::cerr << cpu_model_name() << '\n';
  std::cout << (format == "md"    ? table.markdown()
                : format == "csv" ? table.csv()
                                  : table.json() + "\n");
}

Session traffic_session(const Options& options, const BenchModel& model, Backend& backend,
                        const RunSetting& setting, std::int64_t sequences, std::int64_t each) {
  constexpr std::int64_t kDraftRows = 16;
  RunLimits limits;
  limits.sequences = static_cast<int>(sequences);
  limits.context = each * sequences;
  limits.batch_tokens = std::max(setting.batch_tokens, sequences);
  limits.output_tokens = sequences + kDraftRows;
  choose_cache(options, setting, model, limits);
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

// One row for each combination of number of sequences, prompt length and reply length.
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
            Session session = traffic_session(options, model, *backend, setting, sequences, each);
            table.add(bench_traffic(model, session, traffic));
          }
        }
      }
    }
  }
  return table;
}

// Returns the text of -f or --replay, tokenized for the model.
std::vector<Token> tokens_of(const std::string& path, const BenchModel& model) {
  constexpr std::uint64_t kMaxBytes = 16 << 20;
  const std::string text = read_text_file(path, kMaxBytes);
  const Tokenizer* tokenizer = model.tokenizer();
  if (tokenizer == nullptr) return numbered_words(text, model.config().vocab);
  return tokenizer->encode(text, {.add_bos = tokenizer->add_bos()});
}

SpeculationTest speculation_of(const Options& options, const BenchModel& model) {
  SpeculationTest test;
  test.reply = options.integers("n-gen")[0];
  test.max_draft_tokens = std::min(options.integer("draft-max"), kMaxDraftTokens);
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
      RunLimits limits;
      limits.batch_tokens = setting.batch_tokens;
      choose_cache(options, setting, model, limits);
      const auto backend = chosen_backend(options, setting.threads);
      Session session = model.make_session(*backend, speculation_limits(test, limits));
      std::optional<BenchModel> draft;
      std::unique_ptr<Session> draft_session;  // built in place: its parts hold references
      if (options.given("model-draft")) {
        draft.emplace(options.text("model-draft"), load_mode(options), kSyntheticContext);
        if (model.tokenizer() != nullptr && draft->tokenizer() != nullptr) {
          require_same_vocabulary(*model.tokenizer(), model.name(), *draft->tokenizer(),
                                  draft->name());
        }
        draft_session.reset(new Session(
            draft->make_session(*backend, draft_limits(session.limits(), draft->config()))));
      }
      if (draft_session == nullptr) {
        draft_session = model.make_mtp_session(*backend, session.limits());
      }
      const std::string drafter = draft           ? draft->name() + " " + draft->scheme()
                                  : draft_session ? "mtp"
                                                  : "";
      bench_speculation(model, session, drafter, draft_session.get(), test, table);
    }
  }
  return table;
}

void check_sweep_of_ranks(const Options& options) {
  if (!options.given("tp")) return;
  for (const char* other : {"load", "fusion", "arrivals", "speculate"}) {
    require(!options.given(other), "--tp: is for tests of -p and -n, not for --", other);
  }
  for (const std::int64_t ranks : options.integers("tp")) check_ranks(options, ranks);
}

// Returns the ranks started by mpirun; null without mpirun.
std::unique_ptr<Communicator> ranks_of_mpirun(const Options& options) {
  for (const std::int64_t ranks : options.integers("tp")) {
    if (ranks_are_processes(static_cast<int>(ranks), device_name(options))) {
      return make_mpi_rank({});
    }
  }
  return nullptr;
}

int measure(const Options& options) {
  const std::string& format = options.text("output");
  if (options.has("write")) {
    write_synthetic(options);
    return 0;
  }
  require(!options.given("write-tokenizer"), "--write-tokenizer: needs --write FILE");
  check_sweep_of_ranks(options);
  if (options.flag("load")) {
    require(device_name(options) == "cpu", "--load: measures loading for the CPU; leave out -dev,",
            " leq-run -v prints the speed of an upload");
    print(load_table(options), format);
    return 0;
  }
  if (options.flag("fusion")) {
    const std::string& model = options.list("model").front();
    require(
        options.list("model").size() == 1 && !is_synthetic(model) && device_name(options) == "cpu",
        "--fusion: expected one .leq file, on the CPU");
    check_model_file("-m", model);
    const int threads =
        threads_for(static_cast<int>(options.integers("threads").front()), numa_mode(options));
    print(bench_fusion(model, threads, static_cast<int>(options.integer("repetitions"))), format);
    return 0;
  }
  for (const std::string& model : options.list("model")) {
    if (!is_synthetic(model)) check_model_file("-m", model);  // fails before others are measured
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
    require(!options.given(flag), "--", flag, ": needs --speculate");
  }
  const std::unique_ptr<Communicator> processes = ranks_of_mpirun(options);
  Bench bench(options, processes.get());
  for (const std::string& model : options.list("model")) bench.run(model);
  if (processes == nullptr || processes->leads()) print(bench.table(), format);
  return 0;
}

int run(const Options& options) {
  const OtherLoad others;
  const int status = measure(options);
  others.warn();
  return status;
}

}  // namespace
}  // namespace leq

const leq::Tool leq::kBench = {
    "leq-bench", leq::tool_spec, [](const leq::Options& given) {
      leq::Options options = given;
      const auto& words = options.positionals();
      const bool named = options.given("model") || options.given("hf-repo");
      leq::require(named || !words.empty(), leq::kNoModel,
                   "; synthetic:llama-7b:int8 is measured without a file");
      leq::require(!named || words.empty(), "a model beside that of -m or -hf: leave one out");
      if (!words.empty() && leq::is_synthetic(words.front())) {
        options.set_text("model", options.take_positional());
      }
      return leq::with_model_files(options, leq::run);
    }};
