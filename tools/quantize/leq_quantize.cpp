// leq-quantize: quantizes a Hugging Face checkpoint folder to a .leq file.
#include <exception>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "model/ranks.h"
#include "ranks/communicator.h"
#include "runtime/runtime.h"
#include "tools/common/device_choice.h"
#include "tools/common/interrupt.h"
#include "tools/common/mains.h"
#include "tools/common/setting_flags.h"
#include "tools/quantize/options.h"

namespace leq {
namespace {

void quantize_as(const QuantizeCommand& command, Communicator& ranks, int threads) {
  QuantizeOptions own = command.options;
  own.ranks = &ranks;
  own.threads = threads;
  if (!ranks.leads()) {  // messages and progress are the leader's
    own.stop = [] { return false; };
    own.say = [](const auto&) {};
    own.progress = [](auto, auto, auto, const auto&) {};
  }
  quantize_checkpoint(command.checkpoint, command.output, own);
}

// The destructor joins the threads even if the leader throws; the leader's abort ends them.
class Followers {
 public:
  Followers(ThreadRanks& ranks, const QuantizeCommand& command, int threads) : leader_(ranks[0]) {
    for (int rank = 1; rank < ranks.size(); ++rank) {
      Communicator& own = ranks[rank];
      const int share = threads_of_rank(threads, rank, ranks.size());
      threads_.emplace_back([&own, &command, share] {
        try {
          quantize_as(command, own, share);
        } catch (const Error& error) {
          own.abort(error);  // the leader reports the error
        } catch (const std::exception& error) {
          own.abort(rank_error(own, Error(error.what(), ErrorKind::no_memory)));
        }
      });
    }
  }
  ~Followers() {
    leader_.abort(Error("the leader is gone", ErrorKind::interrupted));
    for (std::thread& thread : threads_) thread.join();
  }
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

 private:
  Communicator& leader_;
  std::vector<std::thread> threads_;
};

// Under mpirun all processes except the leader throw FollowerDone after their part. Throws Error
// like quantize_checkpoint, and if --tp does not match the processes.
void quantize_on_ranks(const Options& options, const QuantizeCommand& command) {
  const int count = rank_count(options);
  const int given = command.options.threads;
  require_divisible(command.options, count);  // checked here once, instead of by every rank
  if (ranks_are_processes(count, "cpu")) {
    const std::unique_ptr<Communicator> ranks = make_mpi_rank({});
    quantize_as(command, *ranks, given);
    if (!ranks->leads()) throw FollowerDone();
    return;
  }
  if (count == 1) return quantize_as(command, one_rank(), given);
  const int threads = given > 0 ? given : usable_cores();
  ThreadRanks ranks(count, thread_rank_options(threads, count));
  const Followers others(ranks, command, threads);
  quantize_as(command, ranks[0], threads_of_rank(threads, 0, count));
}

constexpr std::size_t kMaxPathBytes = 4096;

void report(const std::string& type, const QuantizeResult& result, const std::string& output,
            double seconds) {
  const std::string name = printable(output, kMaxPathBytes);
  if (result.search) {
    std::cerr << search_report(*result.search) << "wrote " << name << ", "
              << human_bytes(result.file_bytes) << '\n';
    return;
  }
  std::cerr << "source      " << result.description << ", " << with_commas(result.parameters)
            << " parameters\n"
            << "type        " << type << ", " << fixed(result.bits_per_weight, 2)
            << " bits per weight\n"
            << "wrote       " << name << ", " << human_bytes(result.file_bytes) << " in "
            << fixed(seconds, 1) << " s\n";
}

std::string unit_of(std::string_view work) {
  return work == "gate" ? "windows" : work == "search" ? "evaluations" : "steps";
}

std::string title_of(std::string_view work) {
  return work == "gate" ? "comparing with the unquantized model" : std::string(work);
}

// Shows one progress line for each piece of work, which is erased before other output.
class WorkProgress {
 public:
  void update(std::string_view work, std::int64_t done, std::int64_t total,
              const std::string& note) {
    if (work != work_) end();
    if (!line_) line_ = std::make_unique<Progress>(title_of(work), total, unit_of(work));
    work_ = work;
    line_->update(done, note);
  }
  // Erases the line before other output.
  void clear() {
    if (line_) line_->clear();
  }
  void end() {
    clear();
    line_.reset();
  }

 private:
  std::string work_;
  std::unique_ptr<Progress> line_;
};

ToolSpec tool_spec() {
  ToolSpec tool = quantize_tool();
  tool.answers.push_back(list_devices_answer());
  return tool;
}

int quantize(const Options& options) {
  QuantizeCommand command = quantize_command(options);
  QuantizeOptions& job = command.options;
  run::watch_interrupts("");
  run::watch_ends();
  const run::InterruptScope interrupt;
  const Stopwatch watch;
  WorkProgress progress;
  job.stop = [&] { return interrupt.interrupted(); };
  job.say = [&](const std::string& line) {
    progress.clear();
    std::cerr << with_flags(line) << '\n';
  };
  job.progress = [&](std::string_view work, std::int64_t done, std::int64_t total,
                     const std::string& note) { progress.update(work, done, total, note); };
  job.written = [&](const QuantizeResult& result) {
    progress.end();
    report(job.keeps_types ? "each tensor's own" : job.type, result, command.output.string(),
           watch.seconds());
  };
  try {
    quantize_on_ranks(options, command);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::interrupted) throw;
    std::cerr << "\nleq-quantize: " << with_flags(error) << '\n';
    return run::interrupted_status();
  }
  progress.end();
  std::cerr << "next        leq-run -m " << printable(command.output.string(), kMaxPathBytes)
            << " \"Why is the sky blue?\"\n";
  return 0;
}

}  // namespace
}  // namespace leq

const leq::Tool leq::kQuantize = {"leq-quantize", leq::tool_spec, leq::quantize};
