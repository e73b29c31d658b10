#include "export/onnx_folder.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"
#include "export/decoder_graph.h"
#include "export/genai_config.h"
#include "export/text_file.h"
#include "export/tokenizer_files.h"
#include "export/weight_codes.h"
#include "model/linear_sites.h"

namespace leq {
namespace {

constexpr const char* kModelFile = "model.onnx";
constexpr const char* kDataFile = "model.onnx.data";

bool has_stored_scales(const Model& model) {
  return std::ranges::any_of(model.file().tensors(), [](const StoredTensor& tensor) {
    return has_stored_scale(tensor.view.act);
  });
}

bool quantizes_inputs(const Model& model, const OnnxOptions& options, const ExportTarget& target) {
  require(!target.static_inputs_only || options.inputs != ExportedInputs::f32, Setting{"inputs"},
          " f32: ", target.name, " computes with quantized inputs alone");
  if (options.inputs == ExportedInputs::automatic) {
    return target.contrib || target.static_inputs_only || has_stored_scales(model);
  }
  return options.inputs == ExportedInputs::file;
}

// The size limit of tables with one entry per position or per pair of positions.
constexpr std::int64_t kMostTableNumbers = 1 << 28;

void check_tables(const ModelConfig& config, const GraphOptions& graph, bool contrib) {
  const std::int64_t group = config.heads / config.kv_heads;
  require(graph.tokens == 0 || group * graph.tokens <= kMostTableNumbers / graph.tokens,
          Setting{"tokens"}, " ", graph.tokens,
          ": the mask of a graph of fixed sizes has a number ",
          "for each pair of tokens, here more than ", kMostTableNumbers);
  const std::int64_t pairs = config.head_dim / 2;
  require(!contrib || !config.has_rope() || graph.context <= kMostTableNumbers / pairs,
          Setting{"context"}, " ", graph.context, ": tables of cosines would have more than ",
          kMostTableNumbers, " numbers; say fewer positions");
}

GraphOptions graph_options(const Model& model, const OnnxOptions& options,
                           const ExportTarget& target) {
  const std::int64_t most = model.config().context;
  GraphOptions graph;
  graph.context = options.context > 0 ? options.context : most;
  require(graph.context <= most || !model.config().learned_positions, Setting{"context"}, " ",
          graph.context, ": the model has ", most, " positions");
  graph.tokens = options.tokens;
  require(!target.fixed_shape || options.tokens > 0, Setting{"tokens"}, ": ", target.name,
          " takes graphs of fixed sizes; say how many tokens one has");
  require(!target.contrib || options.tokens == 0, Setting{"tokens"}, " ", options.tokens, ": ",
          target.name, " takes graphs with open sizes");
  require(!target.contrib || options.past, "a graph without past keys and values: ", target.name,
          " takes graphs with them");
  require(options.tokens <= graph.context, Setting{"tokens"}, " ", options.tokens,
          ": the context is ", graph.context);
  graph.past = options.past && options.tokens == 0;
  graph.quantized_inputs = quantizes_inputs(model, options, target);
  check_tables(model.config(), graph, target.contrib);
  return graph;
}

// Notes how many tensors of each type are exported as f32 although they are stored in fewer bits.
void note_floats(const Model& model, std::vector<std::string>& notes) {
  std::map<std::string, int> counts;
  for (const StoredTensor& tensor : model.file().tensors()) {
    const WeightView& view = tensor.view;
    if (has_weight_codes(view) || view.scheme.is_float()) continue;
    ++counts[scheme_name(view.scheme)];
  }
  for (const auto& [type, count] : counts) {
    notes.push_back(std::to_string(count) + " tensors of type " + type +
                    " are written as f32: ONNX has no such codes");
  }
}

// The additional files that onnxruntime-genai needs.
std::vector<TextFile> genai_files(const Model& model, std::int64_t context,
                                  std::vector<std::string>& notes) {
  std::vector<TextFile> files = {
      {"genai_config.json", genai_config(model, context).dump(2) + "\n"}};
  append_tokenizer_files(model, TokenizerUse::genai, files, notes);
  return files;
}

void note_narrow(const Model& model, std::vector<std::string>& notes) {
  const auto narrow = [](const StoredTensor& tensor) {
    return has_weight_codes(tensor.view) && tensor.view.scheme.bits < 4;
  };
  const auto count = std::ranges::count_if(model.file().tensors(), narrow);
  if (count == 0) return;
  notes.push_back(std::to_string(count) + " tensors of 2 and 3 bits take 4 bits in the graph");
}

}  // namespace

ExportedFolder export_onnx(const Model& model, const OnnxOptions& options,
                           const std::filesystem::path& folder) {
  const ExportTarget& target = find_export_target(options.target);
  require(options.opset >= kFirstOpset && options.opset <= kLastOpset, Setting{"opset"}, " ",
          options.opset, ": expected ", kFirstOpset, " to ", kLastOpset);
  const GraphOptions graph_of = graph_options(model, options, target);
  check_export_target(model, target, graph_of.quantized_inputs);
  ExportedFolder result;
  std::vector<TextFile> files;
  if (target.contrib) files = genai_files(model, graph_of.context, result.notes);
  make_export_folder(folder);
  remove_exported(folder / kModelFile);

  OnnxModel graph;
  graph.opset = options.opset;
  graph.producer_version = kVersion;
  graph.graph_name = model.config().family;
  graph.metadata = {{"leq.target", std::string(target.name)}, {"leq.type", model.type()}};
  AtomicFile data(folder / kDataFile);
  GraphBuilder builder(graph, data);
  DecoderGraph(model, target, graph_of, builder).build();
  std::rotate(graph.outputs.begin(), graph.outputs.end() - 1, graph.outputs.end());  // logits first
  check_graph_operators(graph, target);
  data.commit();

  note_floats(model, result.notes);
  note_narrow(model, result.notes);
  files.push_back({kModelFile, encode_onnx(graph, kDataFile)});
  write_text_files(folder, files);
  result.files.emplace_back(kDataFile);
  result.bytes = data.size();
  for (const TextFile& file : files) {
    result.files.push_back(file.name);
    result.bytes += file.text.size();
  }
  return result;
}

}  // namespace leq
