#include "model/model_config.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace leq {

std::vector<LayerConfig> UniformLayers::layers() const {
  std::vector<LayerConfig> all(static_cast<std::size_t>(count), LayerConfig{attention, mlp});
  for (std::size_t i = 0; i < windows.size() && i < all.size(); ++i) {
    all[i].attention()->window = windows[i];
  }
  return all;
}

std::optional<UniformLayers> uniform_layers(std::span<const LayerConfig> layers) {
  UniformLayers uniform;
  uniform.count = std::ssize(layers);
  for (const LayerConfig& layer : layers) {
    if (layer.attention() == nullptr || layer.dense_mlp() == nullptr) return std::nullopt;
    uniform.windows.push_back(layer.attention()->window);
  }
  if (layers.empty()) return uniform;
  uniform.attention = *layers[0].attention();
  uniform.attention.window = 0;
  uniform.mlp = *layers[0].dense_mlp();
  if (std::ranges::all_of(uniform.windows, [](std::int32_t w) { return w == 0; })) {
    uniform.windows.clear();
  }
  return std::ranges::equal(uniform.layers(), layers) ? std::optional(uniform) : std::nullopt;
}

std::vector<std::int64_t> ModelConfig::attention_layers() const {
  std::vector<std::int64_t> found;
  for (std::int64_t layer = 0; layer < layer_count(); ++layer) {
    if (this->layer(layer).attention() != nullptr) found.push_back(layer);
  }
  return found;
}

std::vector<std::int64_t> ModelConfig::cache_layers() const {
  std::vector<std::int64_t> found = attention_layers();
  std::erase_if(found, [&](std::int64_t i) { return layer(i).attention()->kv_of >= 0; });
  return found;
}

KvHeads ModelConfig::kv_heads_of(const AttentionConfig& attention) const {
  return attention.own_heads.count > 0 ? attention.own_heads : KvHeads{kv_heads, head_dim};
}

std::vector<RopeConfig> ModelConfig::ropes() const {
  std::vector<RopeConfig> found;
  const auto add = [&](const LayerConfig& layer) {
    const AttentionConfig* attention = layer.attention();
    if (attention == nullptr || !attention->rope) return;
    if (std::ranges::find(found, *attention->rope) == found.end())
      found.push_back(*attention->rope);
  };
  std::ranges::for_each(layers, add);
  if (mtp) add(*mtp);
  return found;
}

std::int64_t ModelConfig::rope_dims(const RopeConfig& rope) const {
  return rope.dims > 0 ? rope.dims : head_dim;
}

const DeltaNetConfig* ModelConfig::delta_net() const {
  for (const LayerConfig& layer : layers) {
    if (layer.delta_net() != nullptr) return layer.delta_net();
  }
  return nullptr;
}

std::vector<std::int64_t> ModelConfig::state_layers() const {
  std::vector<std::int64_t> found;
  for (std::int64_t layer = 0; layer < layer_count(); ++layer) {
    if (this->layer(layer).attention() == nullptr) found.push_back(layer);
  }
  return found;
}

ModelConfig mtp_model(const ModelConfig& config) {
  ensure(config.mtp.has_value(), "a model without a head of multi-token prediction");
  ModelConfig head = config;
  head.layers = {*config.mtp};
  head.mtp.reset();
  head.reads_hidden = true;
  return head;
}

bool ModelConfig::has_experts() const {
  return std::ranges::any_of(
      layers, [](const LayerConfig& layer) { return layer.experts_mlp() != nullptr; });
}

bool ModelConfig::both_ways() const {
  return std::ranges::any_of(layers, [](const LayerConfig& layer) {
    return layer.attention() != nullptr && layer.attention()->both_ways;
  });
}

QueryTemperature ModelConfig::temperature() const {
  for (const LayerConfig& layer : layers) {
    const AttentionConfig* attention = layer.attention();
    if (attention != nullptr && attention->temperature.period != 0) return attention->temperature;
  }
  return {};
}

std::int64_t ModelConfig::widest_mlp() const {
  std::int64_t widest = 0;
  for (const LayerConfig& layer : layers) {
    if (const DenseMlpConfig* mlp = layer.dense_mlp()) widest = std::max(widest, mlp->hidden);
    if (const ExpertsMlpConfig* mlp = layer.experts_mlp()) {
      widest = std::max({widest, mlp->hidden, mlp->shared_hidden, mlp->dense_hidden});
    }
  }
  return widest;
}

namespace {

// For example ", 128 experts of 768, 8 a token, on 48 layers"; empty if there are no experts.
std::string describe_experts(const ModelConfig& config) {
  std::int64_t count = 0;
  const ExpertsMlpConfig* first = nullptr;
  for (const LayerConfig& layer : config.layers) {
    if (layer.experts_mlp() == nullptr) continue;
    ++count;
    if (first == nullptr) first = layer.experts_mlp();
  }
  if (first == nullptr) return "";
  std::string text = ", " + std::to_string(first->experts) + " experts of " +
                     std::to_string(first->hidden) + ", " + std::to_string(first->active) +
                     " a token";
  if (first->shared_hidden > 0)
    text += " and a shared one of " + std::to_string(first->shared_hidden);
  if (first->dense_hidden > 0)
    text += " beside a dense MLP of " + std::to_string(first->dense_hidden);
  return text + ", on " + std::to_string(count) + " layers";
}

// For example ", 1 KV heads of 512 on 8 layers", of layers unlike the model's others.
std::string describe_own_heads(const ModelConfig& config) {
  std::int64_t count = 0;
  KvHeads own;
  for (const std::int64_t layer : config.attention_layers()) {
    if (config.layer(layer).attention()->own_heads.count == 0) continue;
    own = config.layer(layer).attention()->own_heads;
    ++count;
  }
  if (count == 0) return "";
  return ", " + std::to_string(own.count) + " of " + std::to_string(own.dims) + " on " +
         std::to_string(count) + " layers";
}

}  // namespace

std::string describe(const ModelConfig& config) {
  std::string text = printable(config.family) + ": " + std::to_string(config.layer_count()) +
                     " layers, width " + std::to_string(config.width) + ", " +
                     std::to_string(config.heads) + " heads / " + std::to_string(config.kv_heads) +
                     " KV heads of " + std::to_string(config.head_dim) + ", MLP " +
                     std::to_string(config.widest_mlp()) + ", vocabulary " +
                     std::to_string(config.vocab) + ", context " + std::to_string(config.context);
  text += describe_own_heads(config);
  text += describe_experts(config);
  const std::vector<RopeConfig> ropes = config.ropes();
  for (const RopeConfig& rope : ropes) {
    if (rope.scaling.kind == RopeScalingKind::none) continue;
    text += ", rope " + std::string(rope_scaling_name(rope.scaling.kind));
  }
  int windowed = 0;
  std::int32_t window = 0;
  for (std::int64_t layer = 0; layer < config.layer_count(); ++layer) {
    windowed += config.window(layer) > 0 ? 1 : 0;
    window = std::max(window, config.window(layer));
  }
  if (windowed > 0) {
    text += ", window " + std::to_string(window) + " on " + std::to_string(windowed) + " layers";
  }
  if (const DeltaNetConfig* delta = config.delta_net()) {
    text += ", Gated DeltaNet on " + std::to_string(config.state_layers().size()) + " layers (" +
            std::to_string(delta->value_heads) + " value heads of " +
            std::to_string(delta->value_dim) + " / " + std::to_string(delta->key_heads) +
            " key heads of " + std::to_string(delta->key_dim) + ")";
  }
  if (const auto layers = config.state_layers(); !layers.empty() && !config.delta_net()) {
    text += ", short convolutions of " +
            std::to_string(config.layer(layers.front()).short_conv()->taps) + " taps on " +
            std::to_string(layers.size()) + " layers";
  }
  if (ropes.size() > 1) text += ", " + std::to_string(ropes.size()) + " tables of positions";
  for (const RopeConfig& rope : ropes) {
    if (rope.dims == 0 || rope.scaling.kind == RopeScalingKind::proportional) continue;
    text += ", RoPE on " + std::to_string(rope.dims) + " of " + std::to_string(config.head_dim);
  }
  if (const auto own = config.cache_layers().size(); own < config.attention_layers().size()) {
    text += ", keys and values of " + std::to_string(own) + " layers";
  }
  if (config.layer_input > 0) {
    text += ", an input of " + std::to_string(config.layer_input) + " numbers for each layer";
  }
  if (config.logit_cap.cap > 0) {
    text += ", logits below " + std::to_string(static_cast<int>(config.logit_cap.cap));
  }
  if (const QueryTemperature temperature = config.temperature(); temperature.period > 0) {
    text += ", queries sharper every " + std::to_string(temperature.period) + " positions";
  }
  if (config.both_ways()) text += ", attention in both directions";
  if (config.mtp) text += ", a head of multi-token prediction";
  return text + (config.tied ? ", tied head" : "");
}

}  // namespace leq
