// Makes the calls of whole runs fail, one at a time (docs/hostile-input.md):
//   fault_cases [--chosen K] [--seed S] [--case NAME] [--matching TEXT] [--jobs J]
//               [--tools FOLDER]
// A run with a fault ends as one without, or with status 1 and one line; a run that was killed can
// be resumed and writes the same file; of two writers of one file one is refused.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <thread>

#include "faults/scenario.h"
#include "hostile/case_program.h"
#include "hostile/dice.h"
#include "hostile/judge.h"

namespace leq::faults {
namespace {

namespace fs = std::filesystem;
using hostile::Verdict;

struct Arguments {
  std::size_t chosen = 0;
  std::uint64_t seed = 1;
  std::string only;
  std::string matching;  // part of the names of cases to run
  unsigned jobs = 2;
  fs::path tools = LEQ_TOOLS_DIR, preload = LEQ_FAULT_LIBRARY;
};

Arguments arguments_of(int argc, char** argv) {
  Arguments all;
  hostile::read_arguments(
      argc, argv,
      {{"--chosen", [&](const std::string& value) { all.chosen = std::stoull(value); }},
       {"--seed", [&](const std::string& value) { all.seed = std::stoull(value); }},
       {"--case", [&](const std::string& value) { all.only = value; }},
       {"--matching", [&](const std::string& value) { all.matching = value; }},
       {"--jobs",
        [&](const std::string& value) { all.jobs = static_cast<unsigned>(std::stoul(value)); }},
       {"--tools", [&](const std::string& value) { all.tools = value; }}});
  return all;
}

enum class Kind : std::uint8_t { fault, crash, two_writers };

struct FaultCase {
  std::string name;  // "calibrate/write/ENOSPC/12"
  Kind kind = Kind::fault;
  const Scenario* scenario = nullptr;
  Fault fault;
};

// An error that can occur in one kind of call.
struct Failure {
  Call call;
  How how;
  int error;
  const char* name;
};
constexpr Failure kFailures[] = {
    {Call::open, How::error, EMFILE, "EMFILE"},
    {Call::open, How::error, EACCES, "EACCES"},
    {Call::open, How::error, EINTR, "EINTR"},
    {Call::read, How::error, EIO, "EIO"},
    {Call::read, How::error, EINTR, "EINTR"},
    {Call::read, How::shortened, 0, "short"},
    {Call::write, How::error, ENOSPC, "ENOSPC"},
    {Call::write, How::error, EIO, "EIO"},
    {Call::write, How::error, EINTR, "EINTR"},
    {Call::write, How::shortened, 0, "short"},
    {Call::sync, How::error, EIO, "EIO"},
    {Call::rename, How::error, EACCES, "EACCES"},
    {Call::link, How::error, EPERM, "EPERM"},
    {Call::link, How::error, EDQUOT, "EDQUOT"},
    {Call::truncate, How::error, EIO, "EIO"},
    {Call::map, How::error, ENOMEM, "ENOMEM"},
    {Call::lock, How::error, ENOLCK, "ENOLCK"},
    {Call::close, How::error, EIO, "EIO"},
    {Call::make_folder, How::error, ENOSPC, "ENOSPC"},
    {Call::remove, How::error, EACCES, "EACCES"},
    {Call::thread, How::error, EAGAIN, "EAGAIN"},
    {Call::allocate_site, How::error, ENOMEM, "ENOMEM"},
    {Call::accept, How::error, EMFILE, "EMFILE"},
    {Call::accept, How::error, ECONNABORTED, "ECONNABORTED"},
    {Call::accept, How::error, EINTR, "EINTR"},
    {Call::receive, How::error, ECONNRESET, "ECONNRESET"},
    {Call::receive, How::error, EINTR, "EINTR"},
    {Call::receive, How::shortened, 0, "short"},
    {Call::send, How::error, EPIPE, "EPIPE"},
    {Call::send, How::error, EINTR, "EINTR"},
    {Call::send, How::shortened, 0, "short"},
    {Call::file_bytes, How::error, ENOSPC, "full"},
};

constexpr std::uint64_t kSmallFile = 8192;

// The second of two writers has these options, so that their settings differ.
const std::vector<std::string> kOtherWriter = {"--seed", "7"};

const char* call_name(Call call) { return kCallNames[static_cast<std::size_t>(call)]; }

class Run {
 public:
  Run(const Arguments& arguments, fs::path folder) : folder_(std::move(folder)) {
    place_.tools.folder = arguments.tools;
    place_.preload = arguments.preload;
    place_.samples = folder_ / "samples";
    make_samples(place_.tools, place_.samples);
    for (const Scenario& scenario : scenarios()) {
      whole_[scenario.name] = count(scenario);
      if (scenario.resumable) {
        Scenario other = scenario;
        other.words.insert(other.words.end(), kOtherWriter.begin(), kOtherWriter.end());
        other_[scenario.name] = count(other);
      }
      if (scenario.before_its_last_step.empty()) continue;
      Scenario almost = scenario;
      almost.words = scenario.before_its_last_step;
      almost_[scenario.name] = count(almost);
    }
  }

  std::vector<FaultCase> all() const {
    std::vector<FaultCase> cases;
    for (const Scenario& scenario : scenarios()) {
      const std::vector<std::uint64_t>& counts = whole_.at(scenario.name).counts;
      const auto add = [&](Kind kind, Call call, How how, int error, const char* name) {
        const std::uint64_t count = counts[static_cast<std::size_t>(call)];
        // Every byte of a small file; of larger ones, each block and the last bytes.
        const std::uint64_t step =
            call == Call::file_bytes && count > kSmallFile ? std::uint64_t{4096} : 1;
        for (std::uint64_t n = count; n >= 1; n -= std::min(n, step)) {
          cases.push_back(
              {scenario.name + "/" + call_name(call) + "/" + name + "/" + std::to_string(n),
               kind,
               &scenario,
               {call, how, error, n}});
        }
      };
      for (const Failure& failure : kFailures) {
        add(Kind::fault, failure.call, failure.how, failure.error, failure.name);
      }
      if (scenario.resumable) {
        add(Kind::crash, Call::change, How::kill, 0, "kill");
        add(Kind::crash, Call::change, How::kill_after, 0, "kill_after");
        add(Kind::two_writers, Call::change, How::wait, 0, "two_writers");
      }
    }
    return cases;
  }

  Verdict run(const FaultCase& one, std::string& said) const {
    const fs::path place = place_of(one);
    prepare(place_, *one.scenario, place);
    switch (one.kind) {
      case Kind::fault:
        return run_fault(one, place, said);
      case Kind::crash:
        return run_crash(one, place, said);
      case Kind::two_writers:
        return run_two_writers(one, place, said);
    }
    return {};
  }

  fs::path place_of(const FaultCase& one) const {
    std::string name = one.name;
    std::replace(name.begin(), name.end(), '/', '-');
    std::replace(name.begin(), name.end(), ' ', '-');
    return folder_ / name;
  }
  const Place& place() const { return place_; }

 private:
  Outcome count(const Scenario& scenario) const {
    const fs::path place = folder_ / "whole";
    prepare(place_, scenario, place);
    Block block(place / "notes", {});
    Outcome outcome = run_scenario(place_, scenario, place, &block);
    if (outcome.ended.status != 0) {
      throw std::runtime_error(scenario.name + " fails without a fault: " + outcome.ended.err);
    }
    if (outcome.named_unsynced != 0) {
      throw std::runtime_error(scenario.name + " named a file before its contents were on disk");
    }
    for (std::size_t i = 0; i < scenario.outputs.size(); ++i) {
      if (!outcome.there[i])
        throw std::runtime_error(scenario.name + " wrote no " + scenario.outputs[i]);
    }
    for (const std::string& answer : outcome.ended.answers) {
      if (const std::string said = hostile::said_in(answer); said.empty() || said == "error") {
        throw std::runtime_error(scenario.name + " was answered: " + answer);
      }
    }
    return outcome;
  }

  // Each output must be complete, unchanged or absent.
  Verdict judge_outputs(const Scenario& scenario, const Outcome& outcome,
                        const std::vector<std::string>& before) const {
    const Outcome& whole = whole_.at(scenario.name);
    const auto earlier = almost_.find(scenario.name);
    for (std::size_t i = 0; i < scenario.outputs.size(); ++i) {
      const std::string& found = outcome.files[i];
      const bool as_it_was = !before[i].empty() && found == before[i];
      const bool almost = earlier != almost_.end() && found == earlier->second.files[i];
      if (outcome.there[i] && found != whole.files[i] && !as_it_was && !almost) {
        return {"half", scenario.outputs[i] + " is neither whole nor as it was"};
      }
    }
    return {};
  }

  std::vector<std::string> before(const Scenario& scenario, const fs::path& place) const {
    std::vector<std::string> contents;
    for (const std::string& output : whole_.at(scenario.name).names) {
      contents.push_back(hostile::read_bytes(place / "work" / output));
    }
    return contents;
  }

  static std::vector<std::string> said_by(const Outcome& outcome) {
    std::vector<std::string> said;
    for (const std::string& answer : outcome.ended.answers)
      said.push_back(hostile::said_in(answer));
    return said;
  }

  // Each answer must be that of a complete run, an error, or missing because the connection broke.
  static bool answers_hold(const Outcome& outcome, const Outcome& whole) {
    const std::vector<std::string> said = said_by(outcome), wanted = said_by(whole);
    for (std::size_t i = 0; i < said.size(); ++i) {
      const bool cut = outcome.ended.answers[i].empty();
      if (!cut && said[i] != "error" && said[i] != wanted[i]) return false;
    }
    return true;
  }

  // Ignores files that an interrupted run keeps for the next run, if a message names them.
  static void forget_kept(Outcome& outcome, const Scenario& scenario) {
    if (!scenario.resumable ||
        outcome.ended.err.find("the same command goes on") == std::string::npos)
      return;
    std::erase_if(outcome.changed.made, [](const std::string& path) {
      return path.find(".leq.partial") != std::string::npos ||
             path.find(".leq.search") != std::string::npos;
    });
  }

  Verdict run_fault(const FaultCase& one, const fs::path& place, std::string& said) const {
    const Scenario& scenario = *one.scenario;
    const Outcome& whole = whole_.at(scenario.name);
    const auto contents = before(scenario, place);
    Block block(place / "notes", one.fault);
    Outcome outcome = run_scenario(place_, scenario, place, &block);
    said = outcome.ended.err;
    if (Verdict verdict = judge_outputs(scenario, outcome, contents); !verdict) return verdict;
    hostile::Expectation expectation;
    expectation.outputs = outcome.names;
    expectation.talk = hostile::Talk::around;
    forget_kept(outcome, scenario);
    // An output may be complete although a later step failed.
    for (const std::string& output : outcome.names) {
      std::erase(outcome.changed.made, output);
      std::erase(outcome.changed.changed, output);
    }
    if (one.fault.call == Call::remove) outcome.changed.made.clear();  // removal was not possible
    if (!answers_hold(outcome, whole)) {
      return {"answer", "neither the answer of a whole run nor an error"};
    }
    const bool answered = said_by(outcome) == said_by(whole);
    outcome.ended.answers.clear();
    if (Verdict verdict = judge(scenario.tool, outcome.ended, outcome.changed, expectation);
        !verdict) {
      return verdict;
    }
    const bool passing = one.fault.how == How::shortened ||
                         (one.fault.error == EINTR && one.fault.call != Call::open);
    if (passing && !answered) return {"answer", "a call that had to be repeated cost an answer"};
    if (outcome.ended.status != 0) {
      if (passing) return {"refused", "what a second try would have done ended the run"};
      return {};
    }
    for (std::size_t i = 0; i < scenario.outputs.size(); ++i) {
      const fs::path name = outcome.names[i];
      // If the quality gate could not be measured, the file states this.
      const bool unjudged =
          outcome.there[i] &&
          said.find(name.filename().string() +
                    " is complete, but its KL divergence was not measured") != std::string::npos;
      const bool told =
          unjudged || (!scenario.questions.empty() &&
                       (!answered || said.find(name.filename()) != std::string::npos));
      if ((!outcome.there[i] || outcome.files[i] != whole.files[i]) && !told) {
        return {"lost", "status 0, but " + name.string() + " is not what it should be"};
      }
    }
    if (scenario.same_out && outcome.ended.out != whole.ended.out) {
      return {"lost", "status 0, but stdout is not what it should be"};
    }
    return {};
  }

  Verdict run_crash(const FaultCase& one, const fs::path& place, std::string& said) const {
    const Scenario& scenario = *one.scenario;
    const auto contents = before(scenario, place);
    {
      Block block(place / "notes", one.fault);
      const Outcome killed = run_scenario(place_, scenario, place, &block);
      said = killed.ended.err;
      if (killed.reached && killed.ended.signal != SIGKILL) {
        return {"alive", "the run was not killed"};
      }
      if (Verdict verdict = judge_outputs(scenario, killed, contents); !verdict) return verdict;
    }
    const Outcome resumed = run_scenario(place_, scenario, place, nullptr, {});
    said += resumed.ended.err;
    if (resumed.ended.status != 0) return {"resume", "cannot be resumed"};
    const Outcome& whole = whole_.at(scenario.name);
    for (std::size_t i = 0; i < scenario.outputs.size(); ++i) {
      if (!resumed.there[i] || resumed.files[i] != whole.files[i]) {
        return {"resume", scenario.outputs[i] + " differs from that of an uninterrupted run"};
      }
    }
    std::string left;
    for (const auto& [path, what] : hostile::state_of(place / "work")) {
      const bool known = std::any_of(
          scenario.copies.begin(), scenario.copies.end(),
          [&](const auto& copy) { return path == copy || path.starts_with(copy + "/"); });
      const bool output = std::find(scenario.outputs.begin(), scenario.outputs.end(), path) !=
                          scenario.outputs.end();
      if (!known && !output) left += " " + path;
    }
    if (!left.empty()) return {"litter", "left after the run that went on:" + left};
    return {};
  }

  // Starts a second run with other settings on the same output while the first waits in a call.
  Verdict run_two_writers(const FaultCase& one, const fs::path& place, std::string& said) const {
    const Scenario& scenario = *one.scenario;
    fs::create_directories(place / "notes2");
    Block block(place / "notes", one.fault);
    Outcome first;
    std::atomic<bool> ended = false;
    std::thread runner([&] {
      first = run_scenario(place_, scenario, place, &block);
      ended = true;
    });
    while (block.get().reached == 0 && !ended) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    Scenario other = scenario;
    other.words.insert(other.words.end(), kOtherWriter.begin(), kOtherWriter.end());
    fs::create_directories(place / "second/notes");
    fs::create_symlink("../work", place / "second/work");
    const Outcome second = run_scenario(place_, other, place / "second", nullptr);
    block.get().go = 1;
    runner.join();
    said = "first: " + first.ended.err + "second: " + second.ended.err;
    if (first.ended.status != 0) {
      return {"writers", "the first writer failed, status " + std::to_string(first.ended.status)};
    }
    // Before the first run has locked anything, the second run may begin and complete.
    const bool passed_by =
        second.ended.status == 0 && second.files == other_.at(scenario.name).files;
    const bool refused =
        second.ended.status == 1 && second.ended.err.find(": error: ") != std::string::npos;
    if (!passed_by && !refused) {
      return {"writers", "the second writer, status " + std::to_string(second.ended.status) +
                             ", neither wrote its own file nor was refused"};
    }
    const Outcome& whole = whole_.at(scenario.name);
    for (std::size_t i = 0; i < scenario.outputs.size(); ++i) {
      if (first.files[i] != whole.files[i]) {
        return {"writers", scenario.outputs[i] + " is not what one writer alone makes"};
      }
    }
    return {};
  }

  fs::path folder_;
  Place place_;
  std::map<std::string, Outcome> whole_, almost_, other_;
};

// The case's name less its number.
std::string group_of(const FaultCase& one) { return one.name.substr(0, one.name.rfind('/')); }

// Failures that are inherent in a case.
bool is_known(const FaultCase& one, const Verdict& verdict, const std::string& said) {
  if (verdict.rule != "litter") return false;
  // What cannot be removed stays, and is named.
  if (said.find("cannot be removed") != std::string::npos) return true;
  // OUTPUT.tmpPID of a run that was killed between naming and placing it.
  return one.name.find("/kill") != std::string::npos;
}

int run_all(const Run& run, const std::vector<FaultCase>& cases, const Arguments& arguments) {
  const bool keep = !arguments.only.empty();
  std::atomic<std::size_t> known = 0;
  const auto run_one = [&](std::size_t i) -> std::optional<hostile::CaseFailure> {
    std::string said;
    const Verdict verdict = run.run(cases[i], said);
    if (!keep) fs::remove_all(run.place_of(cases[i]));
    if (verdict) return std::nullopt;
    if (is_known(cases[i], verdict, said)) {
      ++known;
      return std::nullopt;
    }
    return hostile::CaseFailure{group_of(cases[i]) + ": " + verdict.rule, cases[i].name,
                                verdict.text, said};
  };
  const std::size_t failed = hostile::run_cases(cases.size(), arguments.jobs, run_one);
  std::map<std::string, std::size_t> runs;
  for (const FaultCase& one : cases) ++runs[call_name(one.fault.call)];
  for (const auto& [call, number] : runs) std::printf("%s: %zu  ", call.c_str(), number);
  std::printf("\n%zu cases, %zu with known failures, %zu FAILED\n", cases.size(), known.load(),
              failed);
  return failed == 0 ? 0 : 1;
}

// Chooses each kind of call in each run once before it chooses any of them again.
std::vector<FaultCase> choose(std::vector<FaultCase> cases, std::size_t count, std::uint64_t seed) {
  if (count == 0 || count >= cases.size()) return cases;
  hostile::Dice dice(seed, 0);
  for (std::size_t i = 0; i + 1 < cases.size(); ++i) {
    std::swap(cases[i], cases[i + dice.below(cases.size() - i)]);
  }
  std::map<std::string, std::size_t> turn;
  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (std::size_t i = 0; i < cases.size(); ++i) order.push_back({turn[group_of(cases[i])]++, i});
  std::sort(order.begin(), order.end());
  std::vector<FaultCase> chosen;
  for (std::size_t i = 0; i < count; ++i) chosen.push_back(cases[order[i].second]);
  return chosen;
}

int main_of(int argc, char** argv) {
  const Arguments arguments = arguments_of(argc, argv);
  if (std::strlen(LEQ_SANITIZE) > 0) {
    std::printf("faults: NOT RUN, a sanitizer wraps the same calls\n");
    return 0;
  }
  hostile::CaseFolder folder("leq-faults");
  const Run run(arguments, folder.path());
  std::vector<FaultCase> cases = run.all();
  std::erase_if(cases, [&](const FaultCase& each) {
    return each.name.find(arguments.matching) == std::string::npos;
  });
  if (!arguments.only.empty()) {
    folder.keep();
    std::erase_if(cases, [&](const FaultCase& each) { return each.name != arguments.only; });
    if (cases.empty()) throw std::runtime_error(arguments.only + ": no case has this name");
    std::printf("%s\nfolder: %s\n",
                command_text(run.place(), *cases[0].scenario, run.place_of(cases[0])).c_str(),
                run.place_of(cases[0]).c_str());
  } else {
    cases = choose(std::move(cases), arguments.chosen, arguments.seed);
  }
  return run_all(run, cases, arguments);
}

}  // namespace
}  // namespace leq::faults

int main(int argc, char** argv) {
  try {
    return leq::faults::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fault_cases: %s\n", error.what());
    return 2;
  }
}
