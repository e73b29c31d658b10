#include "model/linear_sites.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace leq {
namespace {

// Adds the gain of the norm of the site's output, if the model has such norms.
void add_post_norm(const ModelConfig& config, const char* name, LinearSite& site) {
  if (config.post_norm_eps > 0) site.vectors.push_back({name, config.width});
}

// A site that reads a norm of the residual stream, without weights yet.
LinearSite normed_site(const ModelConfig& config, const char* name, Sublayer sublayer,
                       const char* norm) {
  LinearSite site = {name, sublayer, config.width, Axis::stream};
  site.norm = NormSpec{norm, config.width, config.norm};
  return site;
}

// qkv: [W -> (H + 2 H_kv) d], with an output gate [W -> (2 H + 2 H_kv) d]; o: [H d -> W]
void add_sites(const ModelConfig& config, const AttentionConfig& attention,
               std::vector<LinearSite>& sites) {
  const KvHeads heads = config.kv_heads_of(attention);
  const std::int64_t query = config.heads * heads.dims;
  const std::int64_t key = heads.count * heads.dims;
  const bool bias = attention.qkv_bias;
  LinearSite qkv = normed_site(config, "qkv", Sublayer::mixer, "attention_norm");
  qkv.kv_heads = heads;
  qkv.weights = {{"q", query, Axis::query_heads, bias}};
  const bool own = attention.kv_of < 0;
  if (own) {
    qkv.weights.push_back({"k", key, Axis::kv_heads, bias});
    qkv.weights.push_back({"v", key, Axis::kv_heads, bias});
  }
  if (attention.output_gate) {
    qkv.weights.push_back({"attention_gate", query, Axis::query_heads});
  }
  if (attention.qk_norm) {
    qkv.head_norms.push_back({"q_norm", heads.dims, config.norm});
    if (own) qkv.head_norms.push_back({"k_norm", heads.dims, config.norm});
  }
  if (attention.v_norm && own) qkv.head_norms.push_back({"v_norm", heads.dims, config.norm});
  if (attention.sinks) qkv.vectors.push_back({"attention_sinks", config.heads});
  sites.push_back(std::move(qkv));
  sites.push_back({"o", Sublayer::mixer, query, Axis::query_heads});
  sites.back().weights = {{"o", config.width, Axis::stream, attention.output_bias}};
  sites.back().kv_heads = heads;
  if (!attention.v_norm && own) sites.back().producer = "v";
  add_post_norm(config, "attention_post_norm", sites.back());
}

// delta_in: [W -> channels + H_v d_v]; delta_gates: [W -> 2 H_v]; delta_out: [H_v d_v -> W]
void add_sites(const ModelConfig& config, const DeltaNetConfig& delta,
               std::vector<LinearSite>& sites) {
  LinearSite in = normed_site(config, "delta_in", Sublayer::mixer, "delta_in_norm");
  in.weights = {{"delta_qkv", delta.channels(), Axis::delta_channels},
                {"delta_z", delta.values(), Axis::delta_values},
                {"delta_b", delta.value_heads, Axis::whole, false, true},
                {"delta_a", delta.value_heads, Axis::whole, false, true}};
  in.vectors = {{"delta_conv", delta.conv_taps * delta.channels()},
                {"delta_a_log", delta.value_heads},
                {"delta_dt_bias", delta.value_heads},
                {"delta_norm", delta.value_dim}};
  sites.push_back(std::move(in));
  sites.push_back({"delta_out", Sublayer::mixer, delta.values(), Axis::delta_values});
  sites.back().weights = {{"delta_out", config.width, Axis::stream}};
}

// conv_in: [W -> 3 W]; conv_out: [W -> W]
void add_sites(const ModelConfig& config, const ShortConvConfig& conv,
               std::vector<LinearSite>& sites) {
  LinearSite in = normed_site(config, "conv_in", Sublayer::mixer, "conv_in_norm");
  for (const char* name : {"conv_b", "conv_c", "conv_x"}) {
    in.weights.push_back({name, config.width, Axis::mlp});
  }
  in.vectors = {{"conv_taps", conv.taps * config.width}};
  sites.push_back(std::move(in));
  sites.push_back({"conv_out", Sublayer::mixer, config.width, Axis::mlp});
  sites.back().weights = {{"conv_out", config.width, Axis::stream}};
  sites.back().producer = "conv_c";
}

bool linear_in_up(Activation f) { return f != Activation::clamped_swiglu; }

// gate_up: [W -> 2 F], or only up: [W -> F]; down: [F -> W]
void add_sites(const ModelConfig& config, const DenseMlpConfig& mlp,
               std::vector<LinearSite>& sites) {
  LinearSite gate_up = normed_site(config, "gate_up", Sublayer::mlp, "mlp_norm");
  if (mlp.gated) gate_up.weights.push_back({"gate", mlp.hidden, Axis::mlp, mlp.bias});
  gate_up.weights.push_back({"up", mlp.hidden, Axis::mlp, mlp.bias});
  sites.push_back(std::move(gate_up));
  sites.push_back({"down", Sublayer::mlp, mlp.hidden, Axis::mlp});
  sites.back().weights = {{"down", config.width, Axis::stream, mlp.bias}};
  // A gated product is linear in up, so that up can absorb a scale; activations are not linear.
  if (mlp.gated && linear_in_up(mlp.activation)) sites.back().producer = "up";
  add_post_norm(config, "mlp_post_norm", sites.back());
}

void add_gated(const std::string& of, std::int64_t hidden, bool bias, double share,
               LinearSite& site) {
  for (const char* part : {"gate", "up"}) {
    site.weights.push_back({of + part, hidden, Axis::mlp, bias, false, share});
  }
}

// down of one expert: [F -> W]
LinearSite down_of(const ModelConfig& config, const ExpertsMlpConfig& mlp, const std::string& of,
                   std::int64_t hidden, double share) {
  LinearSite down = {of + "down", Sublayer::mlp, hidden, Axis::mlp};
  down.weights = {{of + "down", config.width, Axis::stream, mlp.bias, false, share}};
  if (linear_in_up(mlp.activation)) down.producer = of + "up";
  return down;
}

// One site has all linears that read the norm's output: router [W -> E], gate_up [W -> 2 F] of each
// expert; of a shared expert gate_up [W -> 2 F'] and gate [W -> 1]. Each down [F -> W] is a site.
void add_sites(const ModelConfig& config, const ExpertsMlpConfig& mlp,
               std::vector<LinearSite>& sites) {
  const bool beside = mlp.dense_hidden > 0;
  if (beside) {
    const DenseMlpConfig dense = {.hidden = mlp.dense_hidden, .activation = mlp.activation};
    add_sites(config, dense, sites);
  }
  LinearSite first =
      normed_site(config, "experts", Sublayer::mlp, beside ? "experts_norm" : "mlp_norm");
  first.weights.push_back({"router", mlp.experts, Axis::whole, mlp.bias, true, 1, beside});
  if (beside) first.vectors = {{"router_norm", config.width}, {"router_scales", mlp.experts}};
  if (mlp.shared_hidden > 0) first.weights.push_back({"shared_gate", 1, Axis::whole, false, true});
  if (mlp.choice_bias) first.vectors.push_back({"choice_bias", mlp.experts});
  const double share = static_cast<double>(mlp.active) / static_cast<double>(mlp.experts);
  for (std::int64_t e = 0; e < mlp.experts; ++e) {
    add_gated(expert_part(e, ""), mlp.hidden, mlp.bias, share, first);
  }
  if (mlp.shared_hidden > 0) add_gated("shared.", mlp.shared_hidden, mlp.bias, 1, first);
  sites.push_back(std::move(first));
  for (std::int64_t e = 0; e < mlp.experts; ++e) {
    sites.push_back(down_of(config, mlp, expert_part(e, ""), mlp.hidden, share));
    sites.back().block = "experts.down";
  }
  if (mlp.shared_hidden > 0) {
    sites.push_back(down_of(config, mlp, "shared.", mlp.shared_hidden, 1));
  }
  if (!beside) return;
  add_post_norm(config, "experts_post_norm", sites.back());
  add_post_norm(config, "joined_post_norm", sites.back());
}

}  // namespace

std::string expert_part(std::int64_t expert, std::string_view part) {
  return "experts." + std::to_string(expert) + "." + std::string(part);
}

double LinearSite::share() const {
  double largest = 0;
  for (const LinearSpec& weight : weights) largest = std::max(largest, weight.share);
  return largest;
}

std::vector<LinearSpec> LinearSite::coded_weights() const {
  std::vector<LinearSpec> coded;
  for (const LinearSpec& weight : weights) {
    if (!weight.exact) coded.push_back(weight);
  }
  return coded;
}

std::vector<LinearSite> linear_sites(const ModelConfig& config, std::int64_t layer) {
  std::vector<LinearSite> sites;
  const auto add = [&](const auto& kind) { add_sites(config, kind, sites); };
  std::visit(add, config.layer(layer).mixer);
  std::visit(add, config.layer(layer).mlp);
  if (const std::int64_t numbers = config.layer_input; numbers > 0) {
    auto& vectors = sites.back().vectors;
    vectors.push_back({"input_gate", numbers, config.width});
    vectors.push_back({"input_projection", config.width, numbers});
    vectors.push_back({"input_post_norm", config.width});
  }
  if (config.layer_scales) sites.back().vectors.push_back({"layer_scale", 1});
  return sites;
}

namespace {

using Specs = std::vector<TensorSpec>;

void add_norm(const std::string& name, std::int64_t width, NormKind kind, Specs& specs) {
  specs.push_back({name, {width}, TensorRole::vector});
  if (kind == NormKind::layer) specs.push_back({name + ".bias", {width}, TensorRole::vector});
}

std::int64_t parameters(const TensorSpec& spec) {
  return std::accumulate(spec.shape.begin(), spec.shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

}  // namespace

std::string layer_tensor(std::int64_t layer, std::string_view part) {
  return "layers." + std::to_string(layer) + "." + std::string(part);
}

TensorRole role_of(const LinearSite& site, const LinearSpec& weight) {
  if (weight.exact) return TensorRole::exact_linear;
  if (site.norm) return TensorRole::normed_linear;
  return site.sublayer == Sublayer::mixer ? TensorRole::mixer_output : TensorRole::mlp_output;
}

std::vector<TensorSpec> layer_tensors(const ModelConfig& config, std::int64_t layer) {
  Specs specs;
  for (const LinearSite& site : linear_sites(config, layer)) {
    if (site.norm) add_norm(site.norm->name, site.norm->width, site.norm->kind, specs);
    for (const LinearSpec& weight : site.weights) {
      specs.push_back({weight.name, {weight.outputs, site.inputs}, role_of(site, weight)});
      if (!weight.bias) continue;
      specs.push_back({weight.name + ".bias", {weight.outputs}, TensorRole::vector});
    }
    for (const NormSpec& norm : site.head_norms) add_norm(norm.name, norm.width, norm.kind, specs);
    for (const VectorSpec& one : site.vectors) {
      const bool linear = one.columns > 0;
      specs.push_back({one.name, linear ? Shape{one.count, one.columns} : Shape{one.count},
                       linear ? TensorRole::exact_linear : TensorRole::vector});
    }
  }
  return specs;
}

std::vector<TensorSpec> tensor_list(const ModelConfig& config) {
  const std::int64_t width = config.width;
  Specs specs = {{"token_embedding", {config.vocab, width}, TensorRole::token_embedding}};
  if (config.learned_positions) {
    specs.push_back(
        {"position_embedding", {config.context, width}, TensorRole::position_embedding});
  }
  if (const std::int64_t all = config.layer_count() * config.layer_input; all > 0) {
    specs.push_back({"layer_embedding", {config.vocab, all}, TensorRole::token_embedding});
    specs.push_back({"layer_projection", {all, width}, TensorRole::exact_linear});
    add_norm("layer_projection_norm", config.layer_input, config.norm, specs);
  }
  if (config.reads_hidden) {
    for (const char* input : {"embedding", "hidden"}) {
      add_norm(std::string(input) + "_norm", width, config.norm, specs);
      specs.push_back({std::string("fc_") + input, {width, width}, TensorRole::normed_linear});
    }
  }
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    for (TensorSpec& spec : layer_tensors(config, layer)) {
      spec.name = layer_tensor(layer, spec.name);
      specs.push_back(std::move(spec));
    }
  }
  add_norm("final_norm", width, config.norm, specs);
  if (!config.tied) specs.push_back({"head", {config.vocab, width}, TensorRole::head});
  if (config.embedding_projection) {
    specs.push_back({std::string(kEmbeddingProjection), {width * width}, TensorRole::vector});
  }
  if (!config.mtp) return specs;
  for (TensorSpec& spec : tensor_list(mtp_model(config))) {
    if (is_shared_with_mtp(spec.name)) continue;
    spec.name = std::string(kMtp) + spec.name;
    specs.push_back(std::move(spec));
  }
  return specs;
}

bool is_shared_with_mtp(std::string_view name) {
  return name.starts_with("token_embedding") || name.starts_with("head");
}

bool is_block_linear(TensorRole role) {
  return role == TensorRole::normed_linear || role == TensorRole::mixer_output ||
         role == TensorRole::mlp_output;
}

std::int64_t parameter_count(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const TensorSpec& spec : tensor_list(config)) count += parameters(spec);
  return count;
}

double active_linear_parameters(const ModelConfig& config) {
  double count = 0;
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    for (const LinearSite& site : linear_sites(config, layer)) {
      for (const LinearSpec& weight : site.coded_weights()) {
        count += static_cast<double>(weight.outputs * site.inputs) * weight.share;
      }
    }
  }
  return count;
}

std::int64_t block_linear_parameters(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const TensorSpec& spec : tensor_list(config)) {
    if (is_block_linear(spec.role) && !spec.name.starts_with(kMtp)) count += parameters(spec);
  }
  return count;
}

}  // namespace leq
