// leq-compare: compares quantizations of a model in one HTML report.
#include <iostream>

#include "base/progress.h"
#include "base/text.h"
#include "compare/compare.h"
#include "compare/page/write_report.h"
#include "tools/common/interrupt.h"
#include "tools/common/setting_flags.h"
#include "tools/compare/options.h"

namespace leq {
namespace {

int compare_methods(const Options& options) {
  CompareJob job = compare_job(options);
  run::watch_interrupts("");
  const run::InterruptScope interrupt;
  std::unique_ptr<Progress> progress;
  job.stop = [&] { return interrupt.interrupted(); };
  job.say = [&](const std::string& line) {
    if (progress) progress->clear();
    std::cerr << with_flags(line) << '\n';
  };
  job.progress = [&](std::int64_t done, std::int64_t total, const std::string& step) {
    if (!progress) progress = std::make_unique<Progress>("compare", total, "steps");
    progress->update(done, step);
  };
  const Json results = run_comparison(job);
  progress.reset();
  const WrittenReport written = write_report(results, job.output);
  std::cout << written.summary;
  std::cerr << "wrote " << printable(written.page.string(), 4096) << ", "
            << human_bytes(written.page_bytes) << '\n';
  return 0;
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) {
  return leq::run_tool("leq-compare", leq::compare_tool, argc, argv, leq::compare_methods);
}
