// Runs numbered cases of hostile input (docs/hostile-input.md):
//   hostile_cases [--cases N] [--chosen K] [--seed S] [--case N] [--jobs J] [--tools FOLDER]
//   [--kind gguf]
// All of the first N cases, or K of them chosen by the day's seed; one alone is repeated with its
// command printed and its folder kept.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <optional>

#include "hostile/case_program.h"
#include "hostile/cases.h"
#include "hostile/dice.h"

namespace leq::hostile {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kAllCases = 4000;
constexpr double kSeconds = 20, kSecondsOfASample = 0.25;  // limit of a run; duration of a sample
constexpr std::uint64_t kAddressSpace = std::uint64_t{3} << 29;

struct Arguments {
  std::uint64_t cases = kAllCases, chosen = 0, seed = 1;
  std::optional<std::uint64_t> only;
  unsigned jobs = 2;
  fs::path tools = LEQ_TOOLS_DIR;
  std::string kind;  // of the damaged file
};

Arguments arguments_of(int argc, char** argv) {
  Arguments all;
  read_arguments(
      argc, argv,
      {{"--cases", [&](const std::string& value) { all.cases = std::stoull(value); }},
       {"--chosen", [&](const std::string& value) { all.chosen = std::stoull(value); }},
       {"--seed", [&](const std::string& value) { all.seed = std::stoull(value); }},
       {"--case", [&](const std::string& value) { all.only = std::stoull(value); }},
       {"--jobs",
        [&](const std::string& value) { all.jobs = static_cast<unsigned>(std::stoul(value)); }},
       {"--tools", [&](const std::string& value) { all.tools = value; }},
       {"--kind", [&](const std::string& value) { all.kind = value; }}});
  return all;
}

struct Outcome {
  std::uint64_t number = 0;
  Case made;
  Ended ended;
  Verdict verdict;
};

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
        plan_.tools.path("leq-run"), "-m", "f32.leq", "--raw", "-p", "the", "-n", "2", "-t", "1"};
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

int repeat_one(const Run& run, std::uint64_t number, CaseFolder& folder) {
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
  std::printf("FAILED: %s: %s\n", outcome.verdict.rule.c_str(), outcome.verdict.text.c_str());
  return 1;
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

int run_all(const Run& run, const Arguments& arguments) {
  const std::vector<std::uint64_t> numbers = chosen_numbers(arguments);
  std::atomic<std::size_t> accepted = 0, refused = 0;
  const auto run_one = [&](std::size_t i) -> std::optional<CaseFailure> {
    const Outcome outcome = run.run(numbers[i]);
    std::error_code ignored;
    fs::remove_all(run.place_of(numbers[i]), ignored);
    if (outcome.ended.status == 0) ++accepted;
    if (outcome.ended.status == 1) ++refused;
    if (outcome.verdict) return std::nullopt;
    return CaseFailure{
        outcome.made.kind + " " + outcome.made.tool + ": " + outcome.verdict.rule,
        "case " + std::to_string(numbers[i]) + ", " + outcome.made.tool + ", " + outcome.made.name,
        outcome.verdict.text, outcome.ended.err};
  };
  const std::size_t failed = run_cases(numbers.size(), arguments.jobs, run_one);
  std::printf("%zu cases: %zu refused, %zu accepted, %zu FAILED\n", numbers.size(), refused.load(),
              accepted.load(), failed);
  if (!modes_hold()) std::printf("modes: NOT RUN, this process may read everything\n");
  if (failed == 0) return 0;
  std::printf("repeat one: hostile_cases --seed %llu --case NUMBER\n",
              static_cast<unsigned long long>(arguments.seed));
  return 1;
}

int main_of(int argc, char** argv) {
  const Arguments arguments = arguments_of(argc, argv);
  // A request for too much memory is an error of the tool's, as without the sanitizer.
  ::setenv("ASAN_OPTIONS", "allocator_may_return_null=1", 0);
  CaseFolder folder("leq-hostile");
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
