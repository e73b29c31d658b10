// leq-export: converts a .leq file to a folder in ONNX or Hugging Face safetensors format.
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "export/hf_folder.h"
#include "export/onnx_folder.h"
#include "tools/common/model_path.h"
#include "tools/common/options.h"

namespace leq {
namespace {

constexpr std::size_t kMostPathBytes = 4096;
constexpr const char* kGraph = "The graph (ONNX)";

std::vector<Option> output_options() {
  const std::string group = "What to write";
  return {{.name = "output",
           .spellings = "-o",
           .kind = OptionKind::text,
           .value_name = "DIR",
           .help = "the folder to write; files of the same names are replaced",
           .group = group,
           .required = true},
          {.name = "target",
           .kind = OptionKind::text,
           .value_name = "NAME",
           .fallback = "onnxruntime",
           .help = "runtime that the ONNX model is written for; a model that it cannot represent "
                   "is refused with the reason",
           .group = group,
           .choices = {"onnxruntime", "tensorrt", "nnapi", "genai"}},
          {.name = "safetensors",
           .help = "a folder of Hugging Face instead: weights as f32, config.json, tokenizer",
           .group = group},
          {.name = "compressed-tensors",
           .help = "the same with the file's integers, as transformers reads them by the package "
                   "compressed-tensors: int8 rows, or 4 bits in groups",
           .group = group}};
}

std::vector<Option> graph_options() {
  return {
      {.name = "inputs",
       .kind = OptionKind::text,
       .value_name = "HOW",
       .fallback = "auto",
       .help = "inputs of linears: quantized as the file says, or f32 (weights alone are "
               "quantized); auto = with stored scales where the file has them, else f32, "
               "but file for genai, whose operator quantizes by blocks of its own",
       .group = kGraph,
       .choices = {"auto", "file", "f32"}},
      {.name = "past",
       .fallback = "true",
       .help =
           "write a graph without the keys and values of earlier positions as inputs and outputs",
       .group = kGraph},
      {.name = "tokens",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "0",
       .help = "a graph of fixed sizes: one sequence of N tokens, no past; 0 = sizes are open",
       .group = kGraph,
       .minimum = 0,
       .maximum = 1 << 20},
      {.name = "opset",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = std::to_string(kFirstOpset),
       .help = "version of the operators",
       .group = kGraph,
       .minimum = static_cast<double>(kFirstOpset),
       .maximum = static_cast<double>(kLastOpset)},
      {.name = "ctx-size",
       .spellings = "-c",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "0",
       .help = "positions that the graph is made for; 0 = the model's",
       .group = kGraph,
       .minimum = 0,
       .maximum = 1 << 24}};
}

ToolSpec tool_spec() {
  ToolSpec tool;
  tool.name = "leq-export";
  tool.summary = "writes a .leq file as an ONNX model or a Hugging Face folder";
  tool.usage = {"model.leq -o DIR [--target genai]",
                "model.leq -o DIR --safetensors | --compressed-tensors"};
  tool.max_positionals = 1;
  tool.options = output_options();
  for (Option& option : graph_options()) tool.options.push_back(std::move(option));
  return tool;
}

ExportedInputs inputs_of(const std::string& word) {
  if (word == "file") return ExportedInputs::file;
  return word == "f32" ? ExportedInputs::f32 : ExportedInputs::automatic;
}

ExportedFolder export_as(const Options& options, const Model& model) {
  const std::filesystem::path folder = options.text("output");
  const bool compressed = options.flag("compressed-tensors");
  if (compressed || options.flag("safetensors")) {
    require(compressed || !options.given("inputs"),
            "--inputs does not apply to --safetensors, which writes floats: leave one of them out");
    for (const char* name : {"target", "past", "tokens", "opset", "ctx-size"}) {
      require(!options.given(name), "--", name,
              " applies to ONNX graphs only: leave it out, or leave out --",
              compressed ? "compressed-tensors" : "safetensors");
    }
    return export_hf(model, compressed ? HfWeights::compressed : HfWeights::floats,
                     inputs_of(options.text("inputs")), folder);
  }
  OnnxOptions onnx;
  onnx.target = options.text("target");
  onnx.inputs = inputs_of(options.text("inputs"));
  onnx.past = options.flag("past");
  onnx.opset = options.integer("opset");
  onnx.tokens = options.integer("tokens");
  onnx.context = options.integer("ctx-size");
  return export_onnx(model, onnx, folder);
}

int run(const Options& options) {
  require(options.positionals().size() == 1,
          "a model must be given: leq-export model.leq -o DIR; see leq-export --help");
  const std::string& path = options.positionals().front();
  check_model_file("", path);
  const std::vector<std::filesystem::path> inputs = {path};
  for (const char* name : {"model.onnx", "model.onnx.data", "model.safetensors"}) {
    require_no_input(std::filesystem::path(options.text("output")) / name, inputs);
  }
  const Stopwatch watch;
  LoadOptions load;
  load.mode = LoadMode::map;
  const Model model(path, load);
  model.file().verify([](std::uint64_t, std::uint64_t) {});  // damage would be harder to find later
  const ExportedFolder written = export_as(options, model);
  for (const std::string& note : written.notes) std::cerr << "note        " << note << '\n';
  std::cerr << "wrote       " << printable(options.text("output"), kMostPathBytes) << ", "
            << human_bytes(written.bytes) << " in " << fixed(watch.seconds(), 1)
            << " s: " << join(written.files) << '\n';
  return 0;
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) {
  return leq::run_tool("leq-export", leq::tool_spec, argc, argv, leq::run);
}
