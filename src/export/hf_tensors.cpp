#include "export/hf_tensors.h"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "export/weight_codes.h"
#include "model/linear_sites.h"
#include "model/weights.h"

namespace leq {
namespace {

// Converts "layers.3.experts.17.up" to {"layers.{}.experts.{}.up", {"3", "17"}}.
std::pair<std::string, std::vector<std::string>> pattern_of(const std::string& name) {
  std::pair<std::string, std::vector<std::string>> found;
  for (const std::string_view part : split(name, ".")) {
    const bool number = parse_int(part).has_value();
    if (number) found.second.emplace_back(part);
    found.first += (found.first.empty() ? "" : ".") + (number ? "{}" : std::string(part));
  }
  return found;
}

// The position of a tensor of leq within a tensor of transformers.
struct Placed {
  std::string tensor;
  TensorRule rule = {};
  std::int64_t expert = 0;  // index in a stacked tensor
  std::string source;       // name in transformers
};

Placed placed(const Family& family, const std::string& tensor) {
  if (tensor == "head") return {tensor, {}, 0, std::string(family.head)};
  const auto [pattern, numbers] = pattern_of(tensor);
  const auto found = std::ranges::find(family.tensors, pattern, &TensorRule::leq);
  ensure(found != family.tensors.end(), "family ", family.name, " has no tensor ", pattern);
  std::string source(found->source);
  for (const std::string& number : numbers) {
    if (const auto at = source.find("{}"); at != std::string::npos) source.replace(at, 2, number);
  }
  const std::int64_t expert = found->stacked ? std::stoll(numbers.at(1)) : 0;
  return {tensor, *found, expert, std::string(family.prefixes.front()) + source};
}

// The linear whose smoothing vector applies to this linear's inputs: the first one of its site.
std::string smoothed_by(const ModelConfig& config, const std::string& tensor) {
  const auto numbers = pattern_of(tensor).second;
  if (numbers.empty()) return tensor;
  const std::int64_t layer = std::stoll(numbers.front());
  for (const LinearSite& site : linear_sites(config, layer)) {
    for (const LinearSpec& linear : site.weights) {
      if (layer_tensor(layer, linear.name) == tensor) {
        return layer_tensor(layer, site.weights.front().name);
      }
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

std::vector<std::byte> bytes_of(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// The tensors of leq that form one tensor of transformers, and their layout within it.
struct Joined {
  std::vector<Placed> members;
  Shape shape;            // in transformers
  std::int64_t rows = 0;  // sum over all members
  std::int64_t columns = 1;
};

// The values of all members, [rows][columns], with rows in transformers' order.
std::vector<float> joined_rows(const Model& model, const Joined& joined) {
  std::vector<float> values(static_cast<std::size_t>(joined.rows * joined.columns));
  for (const Placed& member : joined.members) {
    const TensorRule& rule = member.rule;
    const std::vector<float> part = smoothed_floats(model, member.tensor);
    const std::int64_t rows = std::ssize(part) / joined.columns;
    const std::int64_t first = (member.expert * rule.parts + rule.part) * rows;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t to = rule.order ? rule.order->row(model.config(), row) : first + row;
      for (std::int64_t k = 0; k < joined.columns; ++k) {
        values[static_cast<std::size_t>(to * joined.columns + k)] =
            part[static_cast<std::size_t>(row * joined.columns + k)] - rule.added;
      }
    }
  }
  return values;
}

// `shape`: the shape of each member.
Joined joined_of(const ModelConfig& config, std::vector<Placed> members, const Shape& shape) {
  Joined joined = {std::move(members), shape};
  const TensorRule& rule = joined.members.front().rule;
  joined.columns = shape.size() == 2 ? shape[1] : 1;
  joined.rows = rule.order ? rule.order->stored_rows(config) : shape[0] * rule.parts;
  joined.shape[0] = joined.rows;
  if (rule.stacked) {
    const std::int64_t experts = std::ssize(joined.members) / rule.parts;
    joined.shape.insert(joined.shape.begin(), experts);
    joined.rows *= experts;
  }
  if (rule.transposed) std::swap(joined.shape[0], joined.shape[1]);
  if (rule.taps_first) {  // [taps][channels], stored as a vector
    joined.rows = config.delta_net()->conv_taps;
    joined.columns = shape[0] / joined.rows;
    joined.shape = {joined.columns, 1, joined.rows};
  }
  return joined;
}

}  // namespace

std::string hf_name(const Family& family, const std::string& tensor) {
  return placed(family, tensor).source;
}

std::vector<SafeTensor> hf_float_tensors(
    const Model& model, const Family& family,
    const std::function<bool(const TensorSpec& spec)>& wanted) {
  std::vector<std::string> names;  // in leq's order
  std::map<std::string, std::pair<std::vector<Placed>, Shape>> members;
  for (const TensorSpec& spec : tensor_list(model.config())) {
    if (spec.name.starts_with(kMtp) || !wanted(spec)) continue;
    Placed one = placed(family, spec.name);
    auto& [all, shape] = members[one.source];
    if (all.empty()) names.push_back(one.source);
    shape = spec.shape;
    all.push_back(std::move(one));
  }
  std::vector<SafeTensor> tensors;
  for (const std::string& name : names) {
    auto& [all, shape] = members[name];
    const Joined joined = joined_of(model.config(), std::move(all), shape);
    const TensorRule& rule = joined.members.front().rule;
    const bool turned = rule.transposed || rule.taps_first;
    tensors.push_back({name, "F32", joined.shape, [&model, joined, turned] {
                         const std::vector<float> values = joined_rows(model, joined);
                         return bytes_of(turned ? transposed(values, joined.rows, joined.columns)
                                                : values);
                       }});
  }
  return tensors;
}

}  // namespace leq
