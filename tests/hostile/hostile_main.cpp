// Runs numbered cases of hostile input (docs/hostile-input.md):
//   hostile_cases [--cases N] [--chosen K] [--seed S] [--case N] [--jobs J] [--tools FOLDER]
//   [--strict] [--kind gguf]
// Runs the first N cases, or K of them chosen by the day's seed; a single case is repeated with its
// command printed and its folder kept.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include "hostile/cases.h"
#include "hostile/dice.h"
#include "hostile/known.h"

namespace leq::hostile {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kAllCases = 4000;
constexpr double kSeconds = 20, kSecondsOfASample = 0.25;  // limit of a run; duration of a sample
constexpr std::uint64_t kAddressSpace = std::uint64_t{3} << 29;
constexpr std::size_t kShown = 40;  // number of failures printed in full

struct Arguments {
  std::uint64_t cases = kAllCases, chosen = 0, seed = 1;
  std::optional<std::uint64_t> only;
  unsigned jobs = 2;
  fs::path tools = LEQ_TOOLS_DIR;
  bool strict = false;  // treat known failures as failures
  std::string kind;     // kind of the damaged file
};

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      if (i + 1 >= argc) throw std::runtime_error(word + ": a value is missing");
      return std::string(argv[++i]);
    };
    if (word == "--cases")
      arguments.cases = std::stoull(value());
    else if (word == "--chosen")
      arguments.chosen = std::stoull(value());
    else if (word == "--seed")
      arguments.seed = std::stoull(value());
    else if (word == "--case")
      arguments.only = std::stoull(value());
    else if (word == "--jobs")
      arguments.jobs = static_cast<unsigned>(std::stoul(value()));
    else if (word == "--tools")
      arguments.tools = value();
    else if (word == "--kind")
      arguments.kind = value();
    else if (word == "--strict")
      arguments.strict = true;
    else
      throw std::runtime_error(word +
                               ": expected --cases, --chosen, --seed, --case, --jobs, "
                               "--tools, --kind or --strict");
  }
  return arguments;
}

// A folder that is removed at the end unless it is to be inspected.
class WorkFolder {
 public:
  WorkFolder() {
    std::string pattern = (fs::temp_directory_path() / "leq-hostile-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~WorkFolder() {
    if (kept_) return;
    remove(path_);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const fs::path& path() const { return path_; }
  void keep() { kept_ = true; }

  static void remove(const fs::path& folder) {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

 private:
  fs::path path_;
  bool kept_ = false;
};

struct Outcome {
  std::uint64_t number = 0;
  Case made;
  Ended ended;
  Verdict verdict;
  const KnownFailure* known = nullptr;
};

const KnownFailure* known_of(const Outcome& outcome) {
  for (const KnownFailure& known : known_failures()) {
    const bool text = outcome.made.name.find(known.text) != std::string::npos ||
                      outcome.verdict.text.find(known.text) != std::string::npos ||
                      outcome.ended.err.find(known.text) != std::string::npos;
    if (outcome.made.kind.find(known.kind) != std::string::npos &&
        outcome.verdict.rule == known.rule &&
        (known.tool.empty() || known.tool == outcome.made.tool) && text) {
      return &known;
    }
  }
  return nullptr;
}

class Run {
 public:
  Run(Arguments arguments, const fs::path& folder) : arguments_(std::move(arguments)) {
    folder_ = folder;
    plan_.tools.folder = arguments_.tools;
    plan_.samples = folder_ / "samples";
    plan_.seed = arguments_.seed;
    plan_.kind = arguments_.kind;
    make_samples(plan_.tools, plan_.samples);
    calibrate();
  }

  Outcome run(std::uint64_t number) const {
    const fs::path place = folder_ / ("case-" + std::to_string(number));
    const fs::path work = place / "work", notes = place / "notes";
    fs::create_directories(work);
    fs::create_directories(notes);
    Outcome outcome;
    outcome.number = number;
    outcome.made = make_case(plan_, number, work);
    const FolderState before = state_of(work);
    outcome.ended = run_child(outcome.made.command, limits_, notes);
    outcome.verdict = judge(outcome.made.tool, outcome.ended, changes(before, state_of(work)),
                            outcome.made.expectation);
    if (!outcome.verdict && !arguments_.strict) outcome.known = known_of(outcome);
    return outcome;
  }

  fs::path place_of(std::uint64_t number) const {
    return folder_ / ("case-" + std::to_string(number));
  }

 private:
  // Allows more time on a busy machine and for tools that were built with sanitizers.
  void calibrate() {
    const fs::path notes = folder_ / "calibration";
    fs::create_directories(notes);
    Command command;
    command.words = {
        plan_.tools.path("leq-run"), "-m", "f32.leq", "-p", "the", "-n", "2", "-t", "1"};
    command.folder = plan_.samples;
    double seconds = 0;
    for (int i = 0; i < 3; ++i) {
      seconds = std::max(seconds, run_child(command, {.seconds = 60}, notes).seconds);
    }
    limits_.seconds = kSeconds * std::max(1.0, seconds / kSecondsOfASample);
    limits_.address_space = kAddressSpace;
    // AddressSanitizer reserves terabytes, so the address space is not limited if a run fails.
    const bool may_have_none = std::strlen(LEQ_SANITIZE) > 0 || arguments_.tools != LEQ_TOOLS_DIR;
    if (may_have_none && run_child(command, limits_, notes).status != 0) limits_.address_space = 0;
    std::printf("a valid run takes %.3f s; each case may take %.0f s%s\n", seconds, limits_.seconds,
                limits_.address_space == 0 ? " and any address space (sanitizers)" : "");
  }

  Arguments arguments_;
  fs::path folder_;
  CasePlan plan_;
  Limits limits_;
};

std::string first_line(const std::string& text) {
  std::string line = text.substr(0, std::min(text.find('\n'), std::size_t{240}));
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return line;
}

void print(const Outcome& outcome) {
  std::printf("case %llu: %s: %s (%s)\n    %s\n    said: %s\n",
              static_cast<unsigned long long>(outcome.number), outcome.verdict.rule.c_str(),
              outcome.verdict.text.c_str(), outcome.made.kind.c_str(),
              first_line(outcome.made.tool + ", " + outcome.made.name).c_str(),
              first_line(outcome.ended.err).c_str());
}

int repeat_one(const Run& run, std::uint64_t number, WorkFolder& folder) {
  folder.keep();
  const Outcome outcome = run.run(number);
  static constexpr const char* kExpected[] = {"must be refused", "may pass", "must be accepted"};
  std::printf("case %llu: %s (%s)\n%s\n%s; exit status %d, signal %d, %.3f s\n",
              static_cast<unsigned long long>(number), outcome.made.name.substr(0, 300).c_str(),
              outcome.made.kind.c_str(), shell_text(outcome.made.command).c_str(),
              kExpected[static_cast<int>(outcome.made.expectation.expect)], outcome.ended.status,
              outcome.ended.signal, outcome.ended.seconds);
  std::printf("stdout:\n%.2000s\nstderr:\n%.2000s\n", outcome.ended.out.c_str(),
              outcome.ended.err.c_str());
  std::printf("folder: %s\n", run.place_of(number).c_str());
  if (outcome.verdict) {
    std::printf("as it should be\n");
    return 0;
  }
  std::printf("FAILED: %s: %s%s\n", outcome.verdict.rule.c_str(), outcome.verdict.text.c_str(),
              outcome.known != nullptr ? " (known)" : "");
  return outcome.known != nullptr ? 0 : 1;
}

std::vector<std::uint64_t> chosen_numbers(const Arguments& arguments) {
  std::vector<std::uint64_t> numbers(arguments.cases);
  std::iota(numbers.begin(), numbers.end(), 0);
  if (arguments.chosen == 0 || arguments.chosen >= arguments.cases) return numbers;
  Dice dice(arguments.seed, 0x6c6571);
  for (std::size_t i = 0; i < arguments.chosen; ++i) {
    std::swap(numbers[i], numbers[i + dice.below(numbers.size() - i)]);
  }
  numbers.resize(arguments.chosen);
  return numbers;
}

class Tally {
 public:
  void add(Outcome outcome) {
    const std::lock_guard lock(mutex_);
    ++runs_;
    if (outcome.ended.status == 0) ++accepted_;
    if (outcome.ended.status == 1) ++refused_;
    if (outcome.verdict) return;
    if (outcome.known != nullptr) {
      ++known_[outcome.known];
    } else {
      failures_[outcome.made.kind + " " + outcome.made.tool + ": " + outcome.verdict.rule]
          .push_back(std::move(outcome));
    }
  }

  int report() const {
    std::size_t failed = 0, shown = 0;
    for (const auto& [group, outcomes] : failures_) failed += outcomes.size();
    for (const auto& [group, outcomes] : failures_) {
      std::printf("\n%zu x %s\n", outcomes.size(), group.c_str());
      for (std::size_t i = 0; i < std::min<std::size_t>(outcomes.size(), 3); ++i) {
        if (shown++ < 10 * kShown) print(outcomes[i]);
      }
    }
    for (const auto& [known, count] : known_) {
      std::printf("KNOWN FAILURE, %zu cases: %s %s %s: %s\n", count,
                  std::string(known->kind).c_str(), std::string(known->tool).c_str(),
                  std::string(known->rule).c_str(), std::string(known->why).c_str());
    }
    for (const KnownFailure& known : known_failures()) {
      if (known_.contains(&known)) continue;
      std::printf("not seen in these cases: %s %s %s: %s\n", std::string(known.kind).c_str(),
                  std::string(known.tool).c_str(), std::string(known.rule).c_str(),
                  std::string(known.why).c_str());
    }
    std::printf("%zu cases: %zu refused, %zu accepted, %zu FAILED\n", runs_, refused_, accepted_,
                failed);
    if (!modes_hold()) std::printf("modes: NOT RUN, this process may read everything\n");
    return failed == 0 ? 0 : 1;
  }

 private:
  std::mutex mutex_;
  std::size_t runs_ = 0, accepted_ = 0, refused_ = 0;
  std::map<std::string, std::vector<Outcome>> failures_;
  std::map<const KnownFailure*, std::size_t> known_;
};

int run_all(const Run& run, const Arguments& arguments) {
  const std::vector<std::uint64_t> numbers = chosen_numbers(arguments);
  std::atomic<std::size_t> next = 0;
  Tally tally;
  std::atomic<bool> broken = false;
  const auto work = [&] {
    for (std::size_t i = next++; i < numbers.size(); i = next++) {
      try {
        tally.add(run.run(numbers[i]));
        if ((i + 1) % 500 == 0) {
          std::printf("%zu of %zu cases\n", i + 1, numbers.size());
          std::fflush(stdout);
        }
      } catch (const std::exception& error) {
        std::printf("case %llu cannot be made: %s\n", static_cast<unsigned long long>(numbers[i]),
                    error.what());
        broken = true;
      }
      WorkFolder::remove(run.place_of(numbers[i]));
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < arguments.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  const int status = tally.report();
  if (status != 0)
    std::printf("repeat one: hostile_cases --seed %llu --case NUMBER\n",
                static_cast<unsigned long long>(arguments.seed));
  return broken ? 1 : status;
}

int main_of(int argc, char** argv) {
  const Arguments arguments = read_arguments(argc, argv);
  // A request for too much memory must be an error of the tool, as without the sanitizer.
  ::setenv("ASAN_OPTIONS", "allocator_may_return_null=1", 0);
  WorkFolder folder;
  const Run run(arguments, folder.path());
  return arguments.only ? repeat_one(run, *arguments.only, folder) : run_all(run, arguments);
}

}  // namespace
}  // namespace leq::hostile

int main(int argc, char** argv) {
  try {
    return leq::hostile::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hostile_cases: %s\n", error.what());
    return 2;
  }
}
