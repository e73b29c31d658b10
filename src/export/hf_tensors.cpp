#include "export/hf_tensors.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "export/weight_codes.h"
#include "model/tensor_list.h"
#include "model/weights.h"

namespace leq {
namespace {

// "layers.3.q" -> {"layers.{}.q", "3"}
std::pair<std::string, std::string> pattern_of(const std::string& name) {
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return {name, ""};
  const std::size_t end = name.find('.', kLayers.size());
  return {"layers.{}" + name.substr(end), name.substr(kLayers.size(), end - kLayers.size())};
}

const TensorRule* rule_of(const Family& family, const std::string& tensor) {
  const std::string pattern = pattern_of(tensor).first;
  const auto found = std::ranges::find(family.tensors, pattern, &TensorRule::leq);
  ensure(found != family.tensors.end(), "family ", family.name, " has no tensor ", pattern);
  return &*found;
}

// The linear whose smoothing vector a linear's inputs are multiplied by: the first of its site.
std::string smoothed_by(const ModelConfig& config, const std::string& tensor) {
  const auto [pattern, layer] = pattern_of(tensor);
  if (layer.empty()) return tensor;
  const std::int64_t index = std::stoll(layer);
  const std::string part = tensor.substr(layer_tensor(index, "").size());
  for (const LinearSite& site : linear_sites(config, index)) {
    for (const LinearSpec& linear : site.weights) {
      if (linear.name == part) return layer_tensor(index, site.weights.front().name);
    }
  }
  return tensor;
}

std::vector<float> smoothed_floats(const Model& model, const std::string& tensor) {
  const StoredTensor& stored = *model.file().find(tensor);
  std::vector<float> values = weight_floats(stored.view);
  const StoredTensor* smooth =
      model.file().find(inv_smooth_tensor(smoothed_by(model.config(), tensor)));
  if (smooth == nullptr || stored.shape.size() != 2) return values;
  const std::vector<float> factors = weight_floats(smooth->view);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= factors[i % factors.size()];
  return values;
}

// The parts of the joined tensor that `tensor` is one of, in their order.
std::vector<std::string> parts_of(const Family& family, const std::string& tensor) {
  const TensorRule& rule = *rule_of(family, tensor);
  if (rule.parts == 1) return {tensor};
  std::vector<std::string> parts(static_cast<std::size_t>(rule.parts));
  for (const TensorRule& other : family.tensors) {
    if (other.source != rule.source) continue;
    parts[static_cast<std::size_t>(other.part)] =
        replace_all(std::string(other.leq), "{}", pattern_of(tensor).second);
  }
  return parts;
}

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::string hf_name(const Family& family, const std::string& tensor) {
  if (tensor == "head") return std::string(family.head);
  const TensorRule& rule = *rule_of(family, tensor);
  return std::string(family.prefixes.front()) +
         replace_all(std::string(rule.source), "{}", pattern_of(tensor).second);
}

SafeTensor hf_float_tensor(const Model& model, const Family& family, const std::string& tensor) {
  const bool is_head = tensor == "head";
  const std::vector<std::string> parts =
      is_head ? std::vector<std::string>{tensor} : parts_of(family, tensor);
  const bool turned = !is_head && rule_of(family, tensor)->transposed;
  Shape shape = model.file().find(tensor)->shape;
  shape[0] *= std::ssize(parts);
  const Shape joined = shape;
  if (turned) std::swap(shape[0], shape[1]);
  return {hf_name(family, tensor), "F32", shape, [&model, parts, turned, joined] {
            std::vector<float> values;
            for (const std::string& part : parts) {
              const std::vector<float> more = smoothed_floats(model, part);
              values.insert(values.end(), more.begin(), more.end());
            }
            return bytes_of(turned ? transposed(values, joined[0], joined[1]) : values);
          }};
}

std::vector<SafeTensor> hf_float_tensors(const Model& model, const Family& family) {
  std::vector<SafeTensor> tensors;
  std::set<std::string> names;
  for (const TensorSpec& spec : tensor_list(model.config())) {
    if (!names.insert(hf_name(family, spec.name)).second) continue;
    tensors.push_back(hf_float_tensor(model, family, spec.name));
  }
  return tensors;
}

}  // namespace leq
