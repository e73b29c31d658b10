#include "model/tensor_list.h"

#include <functional>
#include <numeric>
#include <utility>

namespace leq {
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
      specs.push_back({one.name, {one.count}, TensorRole::vector});
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
