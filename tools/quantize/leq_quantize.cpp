// leq-quantize: quantizes a Hugging Face checkpoint folder to a .leq file.
#include <cmath>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/progress.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "tools/common/device_choice.h"
#include "tools/common/interrupt.h"
#include "tools/common/mains.h"
#include "tools/common/setting_flags.h"
#include "tools/quantize/options.h"
#include "tools/quantize/ranks.h"

namespace leq {
namespace {

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
            << " bits per weight\n";
  // Methods with calibration change weights on purpose, so the error of outputs is reported.
  if (result.worst_loss > 0) {
    std::cerr << "worst loss  " << fixed(100 * std::sqrt(result.worst_loss), 2)
              << " % of the outputs' norm on the calibration text, in " << result.worst_loss_tensor
              << '\n';
  } else if (result.worst_error > 0) {
    std::cerr << "worst error " << fixed(100 * std::sqrt(result.worst_error), 2)
              << " % of the weights' norm, in " << result.worst_tensor << '\n';
  }
  std::cerr << "wrote       " << name << ", " << human_bytes(result.file_bytes) << " in "
            << fixed(seconds, 1) << " s\n"
            << "next        leq-run -m " << name << " -p \"Once upon a time\"\n";
}

std::string unit_of(std::string_view work) {
  return work == "gate" ? "windows" : work == "search" ? "evaluations" : "steps";
}

// Shows one progress line for each piece of work; the line is ended before other output.
class WorkProgress {
 public:
  void update(std::string_view work, std::int64_t done, std::int64_t total,
              const std::string& note) {
    if (work != work_) end();
    if (!line_) line_ = std::make_unique<Progress>(std::string(work), total, unit_of(work));
    work_ = work;
    line_->update(done, note);
  }
  // Erases the line before other output.
  void clear() {
    if (line_) line_->clear();
  }
  void end() { line_.reset(); }

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
  return 0;
}

}  // namespace
}  // namespace leq

int leq::quantize_main(int argc, char** argv) {
  return leq::run_tool("leq-quantize", leq::tool_spec, argc, argv, leq::quantize);
}
