#include "export/export_target.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "export/weight_codes.h"
#include "model/linear_sites.h"

namespace leq {
namespace {

// The operators used by decoders that ONNX Runtime's NNAPI provider supports.
const std::vector<std::string_view> kNnapiOperators = {
    "Add",     "Concat",         "Div",        "DequantizeLinear",
    "Gather",  "Identity",       "MatMul",     "Max",
    "Mul",     "QuantizeLinear", "ReduceMean", "Reshape",
    "Sigmoid", "Softmax",        "Split",      "Sqrt",
    "Sub",     "Tanh",           "Transpose"};

const std::array<ExportTarget, 4>& targets() {
  static const std::array<ExportTarget, 4> table = {{
      {.name = "onnxruntime", .int4_blocks = {32, 64, 128}},
      {.name = "tensorrt",
       .float_embedding = true,
       .dynamic_inputs = false,
       .zero_points = false,
       .grouped_int8 = false,
       .int4_blocks = {64, 128}},
      {.name = "nnapi",
       .float_embedding = true,
       .dynamic_inputs = false,
       .zero_points = false,
       .grouped_int8 = false,
       .one_scale = true,
       .static_inputs_only = true,
       .fixed_shape = true,
       .operators = kNnapiOperators},
      {.name = "genai", .contrib = true, .int4_blocks = {32, 64, 128}},
  }};
  return table;
}

// Checks a linear of a layer against the target's rules that do not depend on its codes.
void check_scheme(const StoredTensor& tensor, const ExportTarget& target) {
  const QuantScheme& scheme = tensor.view.scheme;
  const std::string type = scheme_name(scheme);
  const auto refuse = [&](const auto&... reason) { fail(tensor.name, ": ", reason...); };
  if (!has_weight_codes(tensor.view)) {
    if (target.static_inputs_only) {
      refuse("type ", type, " has no integers; ", target.name, " takes int8-tensor");
    }
    return;
  }
  if (scheme.kind == CodeKind::uint_ && !target.zero_points) {
    refuse("type ", type, " has zero points, which ", target.name,
           " does not hold; quantize to an int type");
  }
  if (scheme.bits == 8) {
    if (scheme.scaling == Scaling::group && !target.grouped_int8) {
      refuse("type ", type, " has a scale for ", scheme.group, " columns; ", target.name,
             " holds one for a row of 8-bit weights: ", target.one_scale ? "int8-tensor" : "int8");
    }
    return;
  }
  if (std::ranges::find(target.int4_blocks, scheme.group) != target.int4_blocks.end()) return;
  if (target.int4_blocks.empty()) {
    refuse("type ", type, ": ", target.name, " holds 8-bit weights alone; quantize to int8-tensor");
  }
  std::vector<std::string> groups;
  for (const int group : target.int4_blocks) groups.push_back(std::to_string(group));
  refuse("type ", type, " has groups of ", scheme.group, " columns, ", target.name,
         " holds groups of ", join(groups, " or "));
}

void check_inputs(const StoredTensor& tensor, const ExportTarget& target) {
  const ActKind act = tensor.view.act;
  if (target.contrib) return;  // the operator quantizes inputs in its own blocks
  if (has_moving_scale(act)) {
    fail(tensor.name, ": act online remembers earlier steps, which no graph does; export with ",
         Setting{"inputs"}, " f32");
  }
  if (target.dynamic_inputs || has_stored_scale(act)) return;
  fail(tensor.name, ": act ", act_name(act), " has no stored scale, and ", target.name,
       " quantizes inputs with stored scales alone, in all linears or none; quantize with ",
       Setting{"act"}, " tensor",
       target.static_inputs_only ? "" : ", or export with inputs in f32");
}

// Whether DecoderGraph supports the layer's computation.
bool in_graphs(const LayerConfig& layer) {
  const AttentionConfig* attention = layer.attention();
  return attention != nullptr && layer.dense_mlp() != nullptr && !attention->output_gate &&
         attention->rotary_dims == 0 && attention->temperature.period == 0;
}

void check_one_scale(const StoredTensor& tensor, const ExportTarget& target) {
  if (!target.one_scale) return;
  if (weight_codes(tensor.view).one_scale()) return;
  fail(tensor.name, ": a scale for each row; ", target.name,
       " holds one for a whole weight: quantize to int8-tensor");
}

}  // namespace

std::span<const ExportTarget> export_targets() { return targets(); }

const ExportTarget& find_export_target(std::string_view name) {
  std::vector<std::string> names;
  for (const ExportTarget& target : targets()) {
    if (target.name == name) return target;
    names.emplace_back(target.name);
  }
  fail("target \"", printable(name), "\" is not known, expected one of ", join(names));
}

void check_export_target(const Model& model, const ExportTarget& target, bool quantized_inputs) {
  const ModelConfig& config = model.config();
  require(config.post_norm_eps == 0 && config.logit_cap.cap == 0, config.family,
          ": exported graphs hold no norms behind sublayers and no capped logits");
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    const std::string place = "layer " + std::to_string(layer);
    require(in_graphs(config.layer(layer)), place,
            ": exported graphs hold softmax attention and dense MLPs; this layer is of another "
            "kind, which a folder of Hugging Face holds");
    for (const LinearSite& site : linear_sites(config, layer)) {
      for (const LinearSpec& linear : site.weights) {
        const StoredTensor& tensor = *model.file().find(layer_tensor(layer, linear.name));
        check_scheme(tensor, target);
        if (quantized_inputs) check_inputs(tensor, target);
        check_one_scale(tensor, target);
      }
    }
  }
}

void check_graph_operators(const OnnxModel& graph, const ExportTarget& target) {
  if (target.operators.empty()) return;
  for (const OnnxNode& node : graph.nodes) {
    require(std::ranges::find(target.operators, node.op) != target.operators.end(), node.name,
            ": operator ", node.op, " is not one that ", target.name, " has");
  }
}

}  // namespace leq
