// leq-quantize: a Hugging Face checkpoint folder to a quantized .leq file.
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "convert/quantize_checkpoint.h"
#include "options.h"

namespace leq {
namespace {

const ToolSpec kTool = {
    .name = "leq-quantize",
    .summary = "Turns a Hugging Face checkpoint folder into a quantized .leq file.",
    .usage = {"HF_DIR -o model.leq", "HF_DIR -o model.leq --type int4-g128"},
    .options = {{.name = "output",
                 .spellings = "-o",
                 .kind = OptionKind::text,
                 .value_name = "FILE",
                 .help = "where to write; the file appears complete or not at all",
                 .group = "Files",
                 .required = true},
                {.name = "type",
                 .kind = OptionKind::text,
                 .value_name = "TYPE",
                 .fallback = "int8",
                 .help = "how numbers are stored: f32, f16, bf16, int8 (one scale per row), "
                         "int8-g128, int4-g128 (one scale per 128 columns)",
                 .group = "Quantization"},
                {.name = "method",
                 .kind = OptionKind::text,
                 .value_name = "NAME",
                 .fallback = "absmax",
                 .help = "who picks the codes: absmax (the nearest code)",
                 .group = "Quantization",
                 .choices = {"absmax"}},
                {.name = "act",
                 .kind = OptionKind::text,
                 .value_name = "KIND",
                 .fallback = "auto",
                 .help = "inputs of quantized linears: auto (int8) or none (weights only, slow)",
                 .group = "Quantization",
                 .choices = {"auto", "none"}},
                {.name = "threads",
                 .spellings = "-t",
                 .kind = OptionKind::integer,
                 .value_name = "N",
                 .fallback = "0",
                 .help = "threads; 0 = one for each core",
                 .group = "Run",
                 .minimum = 0,
                 .maximum = 1024}},
    .max_positionals = 1,
};

int quantize(const Options& options) {
  require(!options.positionals().empty(),
          "HF_DIR is missing: the folder with config.json and "
          "*.safetensors");
  CheckpointOptions checkpoint;
  checkpoint.type = options.text("type");
  checkpoint.act = options.text("act") == "none" ? ActChoice::none : ActChoice::automatic;
  checkpoint.threads = static_cast<int>(options.integer("threads"));
  const std::string& output = options.text("output");
  const auto start = std::chrono::steady_clock::now();
  CheckpointResult result;
  {
    std::unique_ptr<Progress> progress;
    result = quantize_checkpoint(options.positionals().front(), output, checkpoint,
                                 [&](std::int64_t done, std::int64_t total) {
                                   if (!progress)
                                     progress = std::make_unique<Progress>("tensors", total);
                                   progress->update(done);
                                 });
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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
  return 0;
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) { return leq::run_tool(leq::kTool, argc, argv, leq::quantize); }
