#include "export/compressed_tensors.h"

#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "export/hf_tensors.h"
#include "export/weight_codes.h"
#include "model/linear_sites.h"
#include "model/weights.h"

namespace leq {
namespace {

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// Linears with the same scheme, which form one group of quantization_config.
struct LinearScheme {
  int bits = 8;
  int group = 0;  // 0: one scale per row
  ActKind act = ActKind::none;
  auto operator<=>(const LinearScheme&) const = default;

  bool packed() const { return group > 0; }
};

LinearScheme scheme_of(const StoredTensor& tensor, bool quantized_inputs) {
  const QuantScheme& scheme = tensor.view.scheme;
  const auto refuse = [&](const auto&... reason) { fail(tensor.name, ": ", reason...); };
  if (scheme.kind != CodeKind::int_) {
    refuse("type ", scheme_name(scheme),
           ": compressed-tensors are written of int8 and int4-g* types; write floats instead");
  }
  LinearScheme kind = {scheme.bits == 8 ? 8 : 4,
                       scheme.scaling == Scaling::group ? scheme.group : 0,
                       quantized_inputs ? tensor.view.act : ActKind::none};
  const bool fits = kind.act == ActKind::none || kind.act == ActKind::row;
  if (!fits) {
    refuse("act ", act_name(kind.act),
           ": compressed-tensors are written with inputs in f32 or int8 "
           "with a scale for a row; write them with ",
           Setting{"inputs"}, " f32, or quantize with ", Setting{"act"}, " row");
  }
  if (kind.group > 0 && tensor.view.columns % kind.group != 0) {
    refuse(tensor.view.columns, " columns are no multiple of the group of ", kind.group,
           ", as compressed-tensors wants; choose a smaller group");
  }
  return kind;
}

// Packs 32 / bits codes per word, with 2^(bits - 1) added, the first one in the low bits.
std::vector<std::int32_t> packed_words(const WeightCodes& codes) {
  const int each = 32 / codes.bits;
  const std::int64_t words = (codes.columns + each - 1) / each;
  std::vector<std::uint32_t> out(static_cast<std::size_t>(codes.rows * words));
  for (std::int64_t row = 0; row < codes.rows; ++row) {
    for (std::int64_t k = 0; k < codes.columns; ++k) {
      const int code = codes.codes[static_cast<std::size_t>(row * codes.columns + k)];
      const auto biased = static_cast<std::uint32_t>(code + (1 << (codes.bits - 1)));
      out[static_cast<std::size_t>(row * words + k / each)] |= biased << (codes.bits * (k % each));
    }
  }
  return {out.begin(), out.end()};
}

void append_linear(const StoredTensor& tensor, const std::string& module, const LinearScheme& kind,
                   std::vector<SafeTensor>& out) {
  const WeightView& view = tensor.view;
  const std::int64_t groups = kind.group > 0 ? view.columns / kind.group : 1;
  out.push_back({module + ".weight_scale", "F32", {view.rows, groups}, [&view] {
                   return bytes_of(weight_codes(view).scales);
                 }});
  if (!kind.packed()) {
    out.push_back({module + ".weight", "I8", {view.rows, view.columns}, [&view] {
                     return code_bytes(weight_codes(view).codes, 8);
                   }});
    return;
  }
  const std::int64_t words = (view.columns * kind.bits + 31) / 32;
  out.push_back({module + ".weight_packed", "I32", {view.rows, words}, [&view] {
                   return bytes_of(packed_words(weight_codes(view)));
                 }});
  out.push_back({module + ".weight_shape", "I64", {2}, [&view] {
                   return bytes_of(std::vector<std::int64_t>{view.rows, view.columns});
                 }});
}

Json arguments(int bits, const char* strategy, int group, bool dynamic) {
  Json json = {{"num_bits", bits},     {"type", "int"},      {"symmetric", true},
               {"strategy", strategy}, {"dynamic", dynamic}, {"block_structure", nullptr},
               {"actorder", nullptr}};
  json["group_size"] = group > 0 ? Json(group) : Json();
  return json;
}

Json group_config(const LinearScheme& kind, const std::vector<std::string>& modules) {
  Json json = {{"targets", modules},
               {"format", kind.packed() ? "pack-quantized" : "int-quantized"},
               {"output_activations", nullptr}};
  json["weights"] = arguments(kind.bits, kind.group > 0 ? "group" : "channel", kind.group, false);
  json["input_activations"] = kind.act == ActKind::row ? arguments(8, "token", 0, true) : Json();
  return json;
}

Json whole_config(const std::map<LinearScheme, std::vector<std::string>>& kinds) {
  Json groups = Json::object();
  std::string format;
  for (const auto& [kind, modules] : kinds) {
    groups["group_" + std::to_string(groups.size())] = group_config(kind, modules);
    const std::string own = kind.packed() ? "pack-quantized" : "int-quantized";
    format = format.empty() || format == own ? own : "mixed-precision";
  }
  return {{"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},
          {"format", format},
          {"config_groups", groups},
          {"ignore", Json::array({"lm_head"})}};
}

}  // namespace

CompressedTensors compressed_tensors(const Model& model, const Family& family,
                                     bool quantized_inputs) {
  require(family.rotary, family.name,
          ": its linears are no modules of class Linear, which compressed-tensors wants; write "
          "floats instead");
  for (std::int64_t layer = 0; layer < model.config().layer_count(); ++layer) {
    const LayerConfig& config = model.config().layer(layer);
    require(config.attention() != nullptr && config.dense_mlp() != nullptr, "layer ", layer,
            ": compressed-tensors are written of softmax attention and dense MLPs; write floats "
            "instead");
  }
  CompressedTensors out;
  out.tensors = hf_float_tensors(
      model, family, [](const TensorSpec& spec) { return !is_block_linear(spec.role); });
  std::map<LinearScheme, std::vector<std::string>> kinds;
  for (const TensorSpec& spec : tensor_list(model.config())) {
    if (!is_block_linear(spec.role)) continue;
    const StoredTensor& tensor = *model.file().find(spec.name);
    require(model.file().find(inv_smooth_tensor(spec.name)) == nullptr, spec.name,
            ": a smoothing vector of its inputs has no place in compressed-tensors");
    const LinearScheme kind = scheme_of(tensor, quantized_inputs);
    const std::string name = hf_name(family, spec.name);
    const std::string module = name.substr(0, name.rfind('.'));
    kinds[kind].push_back(module);
    append_linear(tensor, module, kind, out.tensors);
  }
  out.config = whole_config(kinds);
  return out;
}

}  // namespace leq
