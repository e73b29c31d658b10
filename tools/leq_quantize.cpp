// leq-quantize: a Hugging Face checkpoint folder to a quantized .leq file.
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "quantize_options.h"
#include "run_interrupt.h"

namespace leq {
namespace {

void report(const CheckpointOptions& checkpoint, const CheckpointResult& result,
            const std::string& output, double seconds) {
  std::cerr << "source      " << result.description << ", " << with_commas(result.parameters)
            << " parameters\n"
            << "type        " << checkpoint.type << ", " << fixed(result.bits_per_weight, 2)
            << " bits per weight\n";
  if (result.worst_error > 0) {
    std::cerr << "worst error " << fixed(100 * std::sqrt(result.worst_error), 2)
              << " % of the weights' norm, in " << result.worst_tensor << '\n';
  }
  std::cerr << "wrote       " << output << ", " << human_bytes(result.file_bytes) << " in "
            << fixed(seconds, 1) << " s\n"
            << "next        leq-run -m " << output << " -p \"Once upon a time\"\n";
}

CheckpointResult quantize_with_progress(const Options& options, CheckpointOptions& checkpoint) {
  std::unique_ptr<Progress> progress;
  checkpoint.say = [&](const std::string& line) {
    progress.reset();  // ends its line
    std::cerr << line << '\n';
  };
  return quantize_checkpoint(options.positionals().front(), options.text("output"), checkpoint,
                             [&](std::int64_t done, std::int64_t total) {
                               if (!progress)
                                 progress = std::make_unique<Progress>("quantize", total);
                               progress->update(done);
                             });
}

int quantize(const Options& options) {
  require(!options.positionals().empty(),
          "HF_DIR is missing: the folder with config.json and "
          "*.safetensors");
  CheckpointOptions checkpoint = checkpoint_options(options);
  run::watch_interrupts("");
  const run::InterruptScope interrupt;
  checkpoint.stop = [&] { return interrupt.interrupted(); };
  const auto start = std::chrono::steady_clock::now();
  try {
    const CheckpointResult result = quantize_with_progress(options, checkpoint);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    report(checkpoint, result, options.text("output"), seconds.count());
  } catch (const Error& error) {
    if (!interrupt.interrupted()) throw;
    std::cerr << "\nleq-quantize: " << error.what() << '\n';
    return run::kInterruptedStatus;
  }
  return 0;
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) {
  return leq::run_tool(leq::quantize_tool(), argc, argv, leq::quantize);
}
