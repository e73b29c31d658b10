#include "convert/hf_experts.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace leq {
namespace {

// Whether the object has the key; false if `key` is null, because the family has no such key.
bool has(const Json& json, const char* key) {
  return key != nullptr && json.find_given(key) != nullptr;
}

std::int64_t expert_count(const Json& json, const ExpertKeys& keys, std::string_view source) {
  const bool other = !has(json, keys.experts) && has(json, keys.experts_too);
  const char* key = other ? keys.experts_too : keys.experts;
  const auto count = json_get<std::int64_t>(json, key, source);
  require(count >= 0, source, ": ", key, " = ", count, ": expected at least 0");
  return count;
}

std::vector<bool> sparse_layers(const Json& json, const ExpertKeys& keys, std::int64_t layers,
                                std::string_view source) {
  const auto step = keys.sparse_step == nullptr
                        ? 1
                        : json_get_or<std::int64_t>(json, keys.sparse_step, 1, source);
  require(step >= 1, source, ": ", keys.sparse_step == nullptr ? "" : keys.sparse_step, " = ", step,
          ": expected at least 1");
  std::vector<bool> sparse;
  for (std::int64_t i = 0; i < layers; ++i) sparse.push_back((i + 1) % step == 0);
  if (!has(json, keys.dense_layers)) return sparse;
  const Json& dense = json[keys.dense_layers];
  require(dense.is_array(), source, ": ", keys.dense_layers, ": expected a list of layers");
  for (const auto& entry : dense) {
    require(entry.is_number_integer(), source, ": ", keys.dense_layers,
            ": expected a list of layers");
    const auto layer = entry.get<std::int64_t>();
    if (layer >= 0 && layer < layers) sparse[static_cast<std::size_t>(layer)] = false;
  }
  return sparse;
}

}  // namespace

void read_experts(const Json& json, const Family& family, std::string_view source,
                  ModelConfig& config) {
  if (!family.experts) return;
  const ExpertKeys& keys = *family.experts;
  ExpertsMlpConfig experts;
  experts.experts = expert_count(json, keys, source);
  if (experts.experts == 0) return;
  experts.active = json_get<std::int64_t>(json, keys.active, source);
  experts.hidden = json_get<std::int64_t>(json, keys.hidden, source);
  experts.normalized = keys.normalized == nullptr ||
                       json_get_or<bool>(json, keys.normalized, keys.normalized_if_absent, source);
  if (keys.shared_hidden != nullptr) {
    experts.shared_hidden = json_get_or<std::int64_t>(json, keys.shared_hidden, 0, source);
  }
  const auto sparse = sparse_layers(json, keys, config.layer_count(), source);
  for (std::size_t i = 0; i < sparse.size(); ++i) {
    if (!sparse[i]) continue;
    require(!config.layers[i].dense_mlp()->bias, source, ": biases of experts are not supported");
    config.layers[i].mlp = experts;
  }
}

}  // namespace leq
