// leq-quantize: a Hugging Face checkpoint folder to a quantized .leq file.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "tools/common/device_choice.h"
#include "tools/common/interrupt.h"
#include "tools/common/setting_flags.h"
#include "tools/quantize/base.h"
#include "tools/quantize/options.h"
#include "tools/quantize/recipe.h"
#include "tools/quantize/search.h"

namespace leq {
namespace {

void report(const CheckpointOptions& checkpoint, const CheckpointResult& result,
            const std::string& output, double seconds) {
  std::cerr << "source      " << result.description << ", " << with_commas(result.parameters)
            << " parameters\n"
            << "type        " << checkpoint.type << ", " << fixed(result.bits_per_weight, 2)
            << " bits per weight\n";
  // Methods that look at inputs move weights on purpose: what counts there is what comes out.
  if (result.worst_loss > 0) {
    std::cerr << "worst loss  " << fixed(100 * std::sqrt(result.worst_loss), 2)
              << " % of the outputs' norm on the calibration text, in " << result.worst_loss_tensor
              << '\n';
  } else if (result.worst_error > 0) {
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
    std::cerr << with_flags(line) << '\n';
  };
  return quantize_checkpoint(options.positionals().front(), options.text("output"), checkpoint,
                             [&](std::int64_t done, std::int64_t total) {
                               if (!progress)
                                 progress = std::make_unique<Progress>("quantize", total);
                               progress->update(done);
                             });
}

constexpr std::int64_t kSearchGroup = 128;  // columns that share a scale, unless --group is given

// --search: prints the plan and why it was taken.
void quantize_with_search(const Options& options, const CheckpointOptions& checkpoint,
                          const std::function<std::filesystem::path()>& base) {
  std::unique_ptr<Progress> files, measurements;
  MixedSearch request = search_request(options, checkpoint);
  request.base = base();
  request.options.progress = [&](int done, double best) {
    files.reset();
    if (!measurements) {
      measurements = std::make_unique<Progress>("search", request.options.evaluations);
    }
    measurements->update(done, "best " + fixed(best, 6));
  };
  const std::int64_t group = options.given("group") ? options.integer("group") : kSearchGroup;
  const MixedSearchResult result =
      quantize_by_search(options.positionals().front(), options.text("output"), checkpoint, request,
                         group, [&](std::int64_t done, std::int64_t total) {
                           if (!files) files = std::make_unique<Progress>("candidates", total);
                           files->update(done);
                         });
  measurements.reset();
  std::cerr << search_report(result) << "wrote " << options.text("output") << ", "
            << human_bytes(result.file_bytes) << '\n';
}

bool searches(const Options& options) {
  return options.given("search") ||
         (options.given("recipe") && require_recipe(options.text("recipe")).searches);
}

// A recipe's result is judged, and that of --smooth o3, which some models do not bear; anything
// else where it is asked for.
bool is_judged(const Options& options) {
  if (options.has("gate")) return options.flag("gate");
  return options.given("recipe") || (options.given("smooth") && options.text("smooth") == "o3");
}

void judge(const Options& options, const GateText& text, const CheckpointOptions& checkpoint,
           const std::filesystem::path& base) {
  std::unique_ptr<Progress> progress;
  const GateResult gate = run_gate(text, base, options.text("output"), checkpoint,
                                   [&](std::int64_t done, std::int64_t total) {
                                     if (!progress)
                                       progress = std::make_unique<Progress>("gate", total);
                                     progress->update(done);
                                   });
  progress.reset();
  std::cerr << gate_report(
      gate, options.given("recipe") ? &require_recipe(options.text("recipe")) : nullptr);
}

int quantize(const Options& options) {
  require(!options.positionals().empty(),
          "HF_DIR is missing: the folder with config.json and "
          "*.safetensors");
  if (!searches(options)) require_no_search_flags(options);
  CheckpointOptions checkpoint = checkpoint_options(options);
  std::optional<GateText> judged;
  if (is_judged(options)) judged = gate_text(options);
  run::watch_interrupts("");
  const run::InterruptScope interrupt;
  checkpoint.stop = [&] { return interrupt.interrupted(); };
  const auto start = std::chrono::steady_clock::now();
  try {
    std::optional<BaseFile> base;  // written where it is first needed
    const auto base_path = [&] {
      if (!base) base.emplace(options.positionals().front(), options.text("output"), checkpoint);
      return base->path();
    };
    if (searches(options)) {
      quantize_with_search(options, checkpoint, base_path);
    } else {
      const CheckpointResult result = quantize_with_progress(options, checkpoint);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      report(checkpoint, result, options.text("output"), seconds.count());
    }
    if (judged) judge(options, *judged, checkpoint, base_path());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::interrupted) throw;
    std::cerr << "\nleq-quantize: " << with_flags(error) << '\n';
    return run::kInterruptedStatus;
  }
  return 0;
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) {
  leq::ToolSpec tool = leq::quantize_tool();
  tool.answers.push_back(leq::list_devices_answer());
  return leq::run_tool(tool, argc, argv, leq::quantize);
}
