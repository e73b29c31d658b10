// All tensors of a checkpoint in f32, block by block, and the function that they compute, evaluated
// by the naive double transformer and by the engine.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "convert/hf_import.h"
#include "model/linear_sites.h"
#include "model/session.h"
#include "quantize/rewrites/fold.h"
#include "reference/naive_transformer.h"
#include "runtime/make_backend.h"
#include "tensor/pack.h"

namespace leq::test {

struct ModelTensors {
  ModelConfig config;
  BlockTensors outside;  // embeddings, final norm, head
  std::vector<BlockTensors> blocks;

  // Finds a tensor by its full name, "layers.1.q"; throws if there is none.
  const Matrix* find(std::string_view name) const {
    constexpr std::string_view kLayers = "layers.";
    const BlockTensors* place = &outside;
    if (name.starts_with(kLayers)) {
      name.remove_prefix(kLayers.size());
      place = &blocks.at(std::stoul(std::string(name)));
      name.remove_prefix(name.find('.') + 1);
    }
    const auto found = place->parts.find(name);
    return found == place->parts.end() ? nullptr : &found->second;
  }
};

inline ModelTensors read_tensors(const ImportedModel& model) {
  ModelTensors read;
  read.config = model.config;
  read.blocks.resize(model.config.layers.size());
  for (const TensorInput& tensor : model.tensors) {
    const bool vector = tensor.shape.size() == 1;
    Matrix matrix = {vector ? 1 : tensor.shape[0], tensor.shape.back(), {}};
    matrix.values.resize(static_cast<std::size_t>(matrix.rows * matrix.columns));
    tensor.read(0, tensor.shape[0], matrix.values);
    if (tensor.name.starts_with("layers.")) {
      const std::string rest = tensor.name.substr(7);
      read.blocks.at(std::stoul(rest)).parts[rest.substr(rest.find('.') + 1)] = std::move(matrix);
    } else {
      read.outside.parts[tensor.name] = std::move(matrix);
    }
  }
  return read;
}

// Returns random numbers for all tensors; norms are near 1.
inline ModelTensors random_tensors(const ModelConfig& config) {
  ModelTensors model;
  model.config = config;
  model.blocks.resize(config.layers.size());
  leq::Random random(17);
  const auto fill = [&](const TensorSpec& spec) {
    const bool vector = spec.shape.size() == 1;
    Matrix matrix = {vector ? 1 : spec.shape[0], spec.shape.back(), {}};
    const bool gain = spec.name.ends_with("norm");
    for (std::int64_t i = 0; i < matrix.rows * matrix.columns; ++i) {
      matrix.values.push_back((gain ? 1.0f : 0.0f) + 0.15f * random.normal());
    }
    return matrix;
  };
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    for (const TensorSpec& spec : layer_tensors(config, layer)) {
      model.blocks[static_cast<std::size_t>(layer)].parts[spec.name] = fill(spec);
    }
  }
  for (const TensorSpec& spec : tensor_list(config)) {
    if (!spec.name.starts_with("layers.")) model.outside.parts[spec.name] = fill(spec);
  }
  return model;
}

using Logits = std::vector<std::vector<double>>;  // [T][V]

inline NaiveTransformer naive_transformer(const ModelTensors& model) {
  std::map<std::string, std::vector<double>> tensors;
  const auto add = [&](const std::string& prefix, const BlockTensors& block) {
    for (const auto& [name, matrix] : block.parts) {
      tensors[prefix + name] = {matrix.values.begin(), matrix.values.end()};
    }
  };
  add("", model.outside);
  for (std::size_t l = 0; l < model.blocks.size(); ++l) {
    add("layers." + std::to_string(l) + ".", model.blocks[l]);
  }
  return {model.config, std::move(tensors)};
}

inline Logits naive_logits(const ModelTensors& model, const std::vector<Token>& ids) {
  return naive_transformer(model).forward(ids);
}

// Packs the tensors as f32 and binds them by name, as in a file of type f32.
class PackedModel {
 public:
  explicit PackedModel(const ModelTensors& model) : config_(model.config) {
    for (const TensorSpec& spec : tensor_list(model.config)) {
      const Matrix* matrix = model.find(spec.name);
      require(matrix != nullptr, "packed model: no tensor ", spec.name);
      packed_.push_back(pack_weight(matrix->values, matrix->rows, matrix->columns, QuantScheme{},
                                    ActKind::none, spec.name));
      StoredTensor stored;
      stored.name = spec.name;
      stored.shape = spec.shape;
      stored.view = packed_.back().view();
      stored_[spec.name] = stored;
    }
  }
  const ModelConfig& config() const { return config_; }
  Weights bind(Backend& backend) const {
    const auto find = [&](std::string_view name) {
      const auto found = stored_.find(name);
      return found == stored_.end() ? nullptr : &found->second;
    };
    return bind_weights(find, "packed model", config_, backend.memory());
  }

 private:
  ModelConfig config_;
  std::deque<PackedWeight> packed_;
  std::map<std::string, StoredTensor, std::less<>> stored_;
};

// Returns logits of all positions of one sequence, computed by the engine in f32.
inline std::vector<float> engine_rows(const PackedModel& model, Backend& backend,
                                      const std::vector<Token>& ids, std::int64_t chunk) {
  RunLimits limits;
  limits.context = limits.batch_tokens = limits.output_tokens = std::ssize(ids);
  limits.key_type = limits.value_type = KvType::f32;
  limits = resolve_limits(limits, model.config());
  Session session(model.config(), model.bind(backend), 0, backend, limits);
  std::vector<float> all, rows;
  for (std::int64_t first = 0; first < std::ssize(ids); first += chunk) {
    const std::int64_t count = std::min(chunk, std::ssize(ids) - first);
    Batch batch;
    batch.add(0, ids.data() + first, count, Batch::Want::all);
    rows.resize(static_cast<std::size_t>(count * model.config().vocab));
    backend.download(session.transformer().forward(batch, session.state()), count, rows);
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

inline Logits engine_logits(const ModelTensors& model, const std::vector<Token>& ids,
                            const std::string& device = "cpu") {
  const auto backend = make_backend({device, 1});
  const auto rows = engine_rows(PackedModel(model), *backend, ids, std::ssize(ids));
  Logits logits;
  const auto vocab = model.config.vocab;
  for (auto row = rows.begin(); row != rows.end(); row += vocab) {
    logits.emplace_back(row, row + vocab);
  }
  return logits;
}

// The largest relative_difference of models that compute the same function: f32 sums against
// double, and weights that a rewrite rounded to f32 once more.
inline constexpr double kSameFunction = 1e-4;

// Returns max |a - b| / max |a|.
inline double relative_difference(const Logits& a, const Logits& b) {
  double worst = 0, largest = 0;
  for (std::size_t t = 0; t < a.size(); ++t) {
    for (std::size_t v = 0; v < a[t].size(); ++v) {
      worst = std::max(worst, std::abs(a[t][v] - b.at(t).at(v)));
      largest = std::max(largest, std::abs(a[t][v]));
    }
  }
  return largest > 0 ? worst / largest : 1.0;
}

}  // namespace leq::test
