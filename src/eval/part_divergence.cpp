#include "eval/divergence.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <span>

#include "base/error.h"
#include "tensor/pack.h"

namespace leq {
namespace {

constexpr float kLargestCode = 127;
// Least mean squared cosine between columns of two weights that come from one checkpoint.
constexpr double kLeastAgreement = 0.5;
constexpr float kNoFold = 0.02F;  // factors this near to 1 are rounding errors of the codes

const StoredTensor& tensor_of(const Model& model, const std::string& name) {
  const StoredTensor* tensor = model.file().find(name);
  require(tensor != nullptr, model.file().name(), ": no tensor ", name,
          "; take files of one checkpoint");
  return *tensor;
}

std::vector<float> unpacked(const WeightView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.rows * view.columns));
  const auto columns = static_cast<std::size_t>(view.columns);
  for (std::int64_t r = 0; r < view.rows; ++r) {
    unpack_row(view, r, std::span(values).subspan(static_cast<std::size_t>(r) * columns, columns));
  }
  return values;
}

// One weight as both files store it, [N][K].
struct WeightPair {
  std::string name;
  std::int64_t rows = 0;
  std::vector<float> exact, quantized;
  std::vector<float> row_factors;  // [N]: divisors of the weight's rows; 1 without a fold
};

// The weights of a site, and the factors [K] by which `other` multiplies the site's inputs: the
// inverse of the factors on the columns.
struct SitePair {
  std::vector<WeightPair> weights;
  std::vector<float> factors;
};

WeightPair weight_pair(const Model& base, const Model& other, const std::string& name) {
  WeightPair weight = {.name = name};
  const WeightView exact = tensor_of(base, name).view;
  const WeightView view = tensor_of(other, name).view;
  require(exact.rows == view.rows && exact.columns == view.columns, name,
          ": other shapes; take files of one checkpoint");
  weight.rows = view.rows;
  weight.exact = unpacked(exact);
  weight.quantized = unpacked(view);
  weight.row_factors.assign(static_cast<std::size_t>(view.rows), 1.0F);
  return weight;
}

// Least-squares fit of w' = w / factor; 1 if no positive factor fits.
struct FactorSum {
  double exact = 0, common = 0, other = 0;

  void add(double w, double w2) {
    exact += w * w;
    common += w * w2;
    other += w2 * w2;
  }
  float factor() const { return common > 0 ? static_cast<float>(exact / common) : 1.0F; }
  double agreement() const { return exact * other > 0 ? common * common / (exact * other) : 1.0; }
};

// The producer's row that computes input k; query heads of one KV head share the rows of v.
std::size_t producer_row(const LinearSite& site, std::size_t k) {
  if (site.axis != Axis::query_heads) return k;
  const auto d = static_cast<std::size_t>(site.kv_heads.dims);
  const auto shared =
      static_cast<std::size_t>(site.inputs / site.kv_heads.dims / site.kv_heads.count);
  return k / d / shared * d + k % d;
}

// A gain, or a vector of factors on inputs; ones if the file has no such tensor.
std::vector<float> vector_of(const Model& model, const std::string& name, std::int64_t count) {
  const StoredTensor* tensor = model.file().find(name);
  if (tensor == nullptr) return std::vector<float>(static_cast<std::size_t>(count), 1.0F);
  require(tensor->view.columns == count, name, ": other shapes; take files of one checkpoint");
  const auto* first = reinterpret_cast<const float*>(tensor->view.codes);
  return {first, first + count};
}

// Files do not store the divisors of a producer's rows. They are fitted as ratios between the
// columns of the site's weights in both files; columns that share a row of v share a divisor.
std::vector<float> fitted_factors(const Model& base, const Model& other, std::int64_t layer,
                                  const LinearSite& site) {
  std::vector<FactorSum> sums(static_cast<std::size_t>(site.inputs));
  const auto sum_of = [&](std::size_t k) -> FactorSum& { return sums[producer_row(site, k)]; };
  for (const LinearSpec& spec : site.weights) {
    const WeightPair weight = weight_pair(base, other, layer_tensor(layer, spec.name));
    for (std::size_t i = 0; i < weight.exact.size(); ++i) {
      sum_of(i % sums.size())
          .add(static_cast<double>(weight.exact[i]), static_cast<double>(weight.quantized[i]));
    }
  }
  std::vector<float> factors;
  for (std::size_t k = 0; k < sums.size(); ++k) factors.push_back(sum_of(k).factor());
  const bool folded =
      std::ranges::any_of(factors, [](float f) { return std::abs(f - 1) > kNoFold; });
  if (!folded) std::ranges::fill(factors, 1.0F);
  return factors;
}

// The factors [K] by which `other` multiplies the inputs of a site.
std::vector<float> input_factors(const Model& base, const Model& other, std::int64_t layer,
                                 const LinearSite& site) {
  if (!site.producer.empty()) return fitted_factors(base, other, layer, site);
  const std::string first = layer_tensor(layer, site.weights.front().name);
  std::vector<float> factors = vector_of(other, inv_smooth_tensor(first), site.inputs);
  if (!site.norm) return factors;
  const std::string norm = layer_tensor(layer, site.norm->name);
  const std::vector<float> exact = vector_of(base, norm, site.inputs);
  const std::vector<float> folded = vector_of(other, norm, site.inputs);
  for (std::size_t k = 0; k < factors.size(); ++k) {
    if (folded[k] != exact[k]) factors[k] *= folded[k] / exact[k];
  }
  return factors;
}

void require_one_checkpoint(const SitePair& pair, const std::string& name) {
  std::vector<FactorSum> columns(pair.factors.size());
  for (const WeightPair& weight : pair.weights) {
    for (std::size_t i = 0; i < weight.exact.size(); ++i) {
      const std::size_t n = i / columns.size(), k = i % columns.size();
      columns[k].add(static_cast<double>(weight.exact[i]),
                     static_cast<double>(weight.quantized[i] * weight.row_factors[n]));
    }
  }
  double agreement = 0;
  for (const FactorSum& column : columns) agreement += column.agreement();
  require(agreement >= kLeastAgreement * static_cast<double>(columns.size()), name,
          ": other columns than in the unquantized model; take files of one checkpoint");
}

SitePair site_pair(const Model& base, const Model& other, std::int64_t layer,
                   const std::vector<LinearSite>& sites, const LinearSite& site) {
  SitePair pair = {.factors = input_factors(base, other, layer, site)};
  for (const LinearSpec& spec : site.weights) {
    WeightPair weight = weight_pair(base, other, layer_tensor(layer, spec.name));
    const auto consumer = std::ranges::find(sites, spec.name, &LinearSite::producer);
    if (consumer != sites.end()) {
      const std::vector<float> columns = input_factors(base, other, layer, *consumer);
      for (std::size_t k = 0; k < columns.size(); ++k) {
        weight.row_factors[producer_row(*consumer, k)] = 1 / columns[k];
      }
    }
    pair.weights.push_back(std::move(weight));
  }
  require_one_checkpoint(pair, layer_tensor(layer, site.name));
  return pair;
}

// f32 tensors that replace tensors of the base.
class ReplacedTensors {
 public:
  void add(const SitePair& pair) {
    const std::size_t columns = pair.factors.size();
    for (const WeightPair& weight : pair.weights) {
      std::vector<float> values = weight.quantized;
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] *= pair.factors[i % columns] * weight.row_factors[i / columns];
      }
      const auto width = static_cast<std::int64_t>(columns);
      packed_.push_back(pack_weight(values, weight.rows, width, require_scheme("f32", weight.name),
                                    ActKind::none, weight.name));
      StoredTensor& tensor = tensors_[weight.name];
      tensor.name = weight.name;
      tensor.shape = {weight.rows, width};
      tensor.view = packed_.back().view();
    }
  }
  const StoredTensor* find(std::string_view name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }

 private:
  std::deque<PackedWeight> packed_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

constexpr std::string_view kTables[] = {"token_embedding", "position_embedding", "head"};

bool is_table(std::string_view name) {
  return std::ranges::find(kTables, name) != std::end(kTables);
}

// Rounds the inputs of selected linears of a session before the linears read them.
class InputRounder : public Observer {
 public:
  void add(const LayerLinear* linear, const LayerLinear& as, std::vector<float> factors) {
    sites_[linear] = {as.act, as.act_scale, std::move(factors)};
  }
  bool see(const LayerLinear& linear, const Rows& input, std::int64_t tokens) override {
    const auto found = sites_.find(&linear);
    if (found == sites_.end()) return true;
    const auto& [act, act_scale, factors] = found->second;
    for (std::int64_t t = 0; t < tokens; ++t) {
      round_inputs(std::span(input.values + t * input.value_stride, factors.size()), factors, act,
                   act_scale);
    }
    return true;
  }

 private:
  struct Site {
    ActKind act;
    float act_scale;
    std::vector<float> factors;
  };
  std::map<const LayerLinear*, Site> sites_;
};

const LayerLinear* linear_at(const Weights& weights, std::int64_t layer, std::size_t site) {
  for (const LayerLinear* linear : weights.layers[static_cast<std::size_t>(layer)].linears()) {
    if (linear->site == site && !linear->exact) return linear;
  }
  return nullptr;
}

bool is_quantized(const LayerLinear& linear, const Model& model, std::int64_t layer,
                  const LinearSite& site) {
  if (is_coded(linear.act)) return true;
  return std::ranges::any_of(site.weights, [&](const LinearSpec& weight) {
    return !tensor_of(model, layer_tensor(layer, weight.name)).view.scheme.is_float();
  });
}

void require_roundable(const Weights& weights, std::int64_t layer, const LinearSite& site,
                       const LayerLinear& linear) {
  const bool experts = site.sublayer == Sublayer::mlp &&
                       weights.layers[static_cast<std::size_t>(layer)].experts_mlp() != nullptr;
  require(!experts, linear.name,
          ": a router reads the inputs of experts too, as floats; measure whole layers");
  require(!has_moving_scale(linear.act), linear.name,
          ": its inputs have a moving scale, which no single step tells; measure the whole model");
}

}  // namespace

void round_inputs(std::span<float> row, std::span<const float> factors, ActKind act,
                  float act_scale) {
  if (!is_coded(act)) return;
  const std::size_t group =
      scale_columns(act) == 0 ? row.size() : static_cast<std::size_t>(scale_columns(act));
  for (std::size_t first = 0; first < row.size(); first += group) {
    const std::size_t last = std::min(row.size(), first + group);
    float step = act_scale;
    if (!has_stored_scale(act)) {
      float largest = 0;
      for (std::size_t k = first; k < last; ++k) {
        largest = std::max(largest, std::abs(row[k] * factors[k]));
      }
      step = largest / kLargestCode;
    }
    if (step <= 0) continue;
    for (std::size_t k = first; k < last; ++k) {
      const float code =
          std::clamp(std::nearbyint(row[k] * factors[k] / step), -kLargestCode, kLargestCode);
      row[k] = code * step / factors[k];
    }
  }
}

std::vector<ModelPart> layer_parts(const Model& model) {
  std::vector<ModelPart> parts;
  for (std::int64_t layer = 0; layer < model.config().layer_count(); ++layer) {
    parts.push_back({layer, std::nullopt, "layers." + std::to_string(layer)});
  }
  return parts;
}

std::vector<ModelPart> site_parts(const Model& model) {
  std::vector<ModelPart> parts;
  for (const ModelPart& layer : layer_parts(model)) {
    const std::vector<LinearSite> sites = linear_sites(model.config(), layer.layer);
    for (std::size_t i = 0; i < sites.size(); ++i) {
      const bool exact = std::ranges::all_of(sites[i].weights, &LinearSpec::exact);
      if (!exact) parts.push_back({layer.layer, i, layer_tensor(layer.layer, sites[i].name)});
    }
  }
  return parts;
}

void with_layer_of(const Model& base, const Model& other, std::int64_t layer, Backend& backend,
                   const RunLimits& limits, const SessionUse& use) {
  ModelConfig config = base.config();
  config.layers[static_cast<std::size_t>(layer)] = other.config().layer(layer);
  const std::string prefix = layer_tensor(layer, "");
  const TensorFinder find = [&](std::string_view name) {
    return name.starts_with(prefix) ? other.file().find(name) : base.file().find(name);
  };
  Session session(config,
                  bind_weights(find, "one layer of another model", config, backend.memory()),
                  base.file().memory_bytes(), backend, limits);
  use(session);
}

bool has_quantized_tables(const Model& model) {
  return std::ranges::any_of(kTables, [&](std::string_view name) {
    const StoredTensor* tensor = model.file().find(name);
    return tensor != nullptr && !tensor->view.scheme.is_float();
  });
}

void with_tables_of(const Model& base, const Model& other, PartSide side, Backend& backend,
                    const RunLimits& limits, const SessionUse& use) {
  ensure(side != PartSide::inputs, "tables: inputs of the head alone are not rounded");
  ReplacedTensors weights_alone;
  for (const std::string_view name : kTables) {
    if (base.file().find(name) == nullptr || side == PartSide::both) continue;
    WeightPair pair = weight_pair(base, other, std::string(name));
    const std::size_t columns = pair.exact.size() / static_cast<std::size_t>(pair.rows);
    weights_alone.add({.weights = {std::move(pair)}, .factors = std::vector<float>(columns, 1.0F)});
  }
  const TensorFinder find = [&](std::string_view name) {
    if (!is_table(name)) return base.file().find(name);
    return side == PartSide::both ? other.file().find(name) : weights_alone.find(name);
  };
  Session session(base.config(),
                  bind_weights(find, "tables of another model", base.config(), backend.memory()),
                  base.file().memory_bytes(), backend, limits);
  use(session);
}

void with_rounded_part(const Model& base, const Model& other, const ModelPart& part, PartSide side,
                       Backend& backend, const RunLimits& limits, const SessionUse& use) {
  const Weights quantized = bind_weights(other.file(), other.config(), backend.memory());
  const std::vector<LinearSite> sites = linear_sites(base.config(), part.layer);
  ReplacedTensors replaced;
  std::map<std::size_t, std::vector<float>> rounded;  // site to factors
  for (std::size_t i = 0; i < sites.size(); ++i) {
    if (part.site.value_or(i) != i) continue;
    const LayerLinear* linear = linear_at(quantized, part.layer, i);
    if (linear == nullptr || !is_quantized(*linear, other, part.layer, sites[i])) continue;
    SitePair pair = site_pair(base, other, part.layer, sites, sites[i]);
    if (side != PartSide::inputs) replaced.add(pair);
    if (side != PartSide::weights) {
      require_roundable(quantized, part.layer, sites[i], *linear);
      rounded[i] = std::move(pair.factors);
    }
  }
  const TensorFinder find = [&](std::string_view name) {
    const StoredTensor* tensor = replaced.find(name);
    return tensor != nullptr ? tensor : base.file().find(name);
  };
  Weights weights = bind_weights(find, "rounded weights", base.config(), backend.memory());
  Session session(base.config(), std::move(weights), base.file().memory_bytes(), backend, limits);
  InputRounder rounder;
  for (auto& [site, factors] : rounded) {
    rounder.add(linear_at(session.weights(), part.layer, site),
                *linear_at(quantized, part.layer, site), std::move(factors));
  }
  session.transformer().observe(&rounder);
  use(session);
  session.transformer().observe(nullptr);
}

}  // namespace leq
