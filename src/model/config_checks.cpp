// Checks that every ModelConfig must pass, whatever file it was read from.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "model/config_fields.h"
#include "model/layer_config_json.h"

namespace leq {
namespace {

constexpr std::int64_t kMostLayers = 4096;
constexpr std::int64_t kWidestMlp = 1 << 22;
constexpr std::int64_t kMostExperts = 4096;

void check_scaling(const RopeScaling& scaling, std::int64_t head_dim, std::string_view source) {
  if (scaling.kind == RopeScalingKind::none) return;
  for (const auto& field : kScalingFields) {
    const double value = scaling.*field.member;
    require(std::isfinite(value) && value >= 0 && value <= 1e6, source, ": rope_scaling ",
            field.name, " = ", value, ": expected 0 to 1e6");
  }
  require(scaling.factor >= 1e-3, source, ": rope_scaling factor = ", scaling.factor,
          ": expected at least 0.001");
  require(scaling.original_context >= 0 && scaling.original_context <= 1 << 24, source,
          ": rope_scaling original context = ", scaling.original_context);
  if (scaling.kind == RopeScalingKind::llama3) {
    require(scaling.original_context > 0, source,
            ": rope_scaling llama3 needs original_max_position_embeddings");
    require(scaling.high_freq_factor > scaling.low_freq_factor && scaling.low_freq_factor > 0,
            source, ": rope_scaling llama3 needs 0 < low_freq_factor < high_freq_factor, found ",
            scaling.low_freq_factor, " and ", scaling.high_freq_factor);
  }
  require(scaling.kind != RopeScalingKind::dynamic || head_dim > 2, source,
          ": rope_scaling dynamic needs a head_dim above 2");
}

void check_temperature(const ModelConfig& config, std::int64_t layer, std::string_view place) {
  const AttentionConfig* attention = config.layer(layer).attention();
  if (attention == nullptr || attention->temperature.period == 0) return;
  const auto& [beta, period] = attention->temperature;
  require(std::isfinite(beta) && beta > 0 && beta <= 1e3, place, ": temperature beta = ", beta,
          ": expected above 0, at most 1000");
  require(period >= 1 && period <= 1 << 24, place, ": temperature period = ", period,
          ": expected 1 to ", 1 << 24);
  require(attention->temperature == config.temperature(), place,
          ": layers with two temperatures of queries are not supported");
}

constexpr std::int64_t kMostTaps = 16;
constexpr std::int64_t kWidestHead = 1024;

void check_attention(const ModelConfig& config, const AttentionConfig& attention,
                     std::string_view place) {
  const std::int64_t dims = attention.rotary_dims;
  require(dims >= 0 && dims <= config.head_dim && dims % 2 == 0, place, ": rotary_dims = ", dims,
          ": expected an even number up to head_dim ", config.head_dim);
  const auto first = config.attention_layers().front();
  const AttentionConfig& other = *config.layer(first).attention();
  require(!attention.rotary || config.rope_dims() == (dims > 0 ? dims : config.head_dim), place,
          ": rotary_dims = ", dims, ", other layers turn ", config.rope_dims(),
          ": expected all alike");
  require(attention.output_gate == other.output_gate, place, ": output_gate unlike that of layers[",
          first, "]: expected all alike");
}

void check_delta_net(const ModelConfig& config, const DeltaNetConfig& delta,
                     std::string_view place) {
  const auto check = [&](const char* name, std::int64_t value, std::int64_t largest) {
    require(value >= 1 && value <= largest, place, ": ", name, " = ", value, ": expected 1 to ",
            largest);
  };
  check("key_heads", delta.key_heads, 4096);
  check("value_heads", delta.value_heads, 4096);
  check("key_dim", delta.key_dim, kWidestHead);
  check("value_dim", delta.value_dim, kWidestHead);
  require(delta.conv_taps >= 2 && delta.conv_taps <= kMostTaps, place,
          ": conv_taps = ", delta.conv_taps, ": expected 2 to ", kMostTaps);
  require(delta.value_heads % delta.key_heads == 0, place, ": ", delta.value_heads,
          " value heads are no multiple of ", delta.key_heads, " key heads");
  require(delta == *config.delta_net(), place,
          ": layers of Gated DeltaNet differ in their sizes, expected all alike");
  require(!config.attention_layers().empty(), place,
          ": a model of Gated DeltaNet alone, expected some layers with attention");
  require(config.norm == NormKind::rms, place, ": Gated DeltaNet, expected RMS norms");
}

void check_mixer(const ModelConfig& config, std::int64_t layer, std::string_view place) {
  if (const auto* attention = config.layer(layer).attention()) {
    check_attention(config, *attention, place);
  }
  if (const auto* delta = config.layer(layer).delta_net()) check_delta_net(config, *delta, place);
}

void check_experts(const ModelConfig& config, const ExpertsMlpConfig& mlp, std::string_view place) {
  const auto check = [&](const char* name, std::int64_t value, std::int64_t low,
                         std::int64_t high) {
    require(value >= low && value <= high, place, ": ", name, " = ", value, ": expected ", low,
            " to ", high);
  };
  check("experts", mlp.experts, 1, kMostExperts);
  check("active experts", mlp.active, 1, mlp.experts);
  check("hidden of experts", mlp.hidden, 1, kWidestMlp);
  check("hidden of the shared expert", mlp.shared_hidden, 0, kWidestMlp);
  require(config.norm == NormKind::rms, place, ": experts after layer norms are not supported");
}

// Checks the norms of sublayer outputs, and the cap of the logits.
void check_additions(const ModelConfig& config, std::string_view source) {
  const auto& [scale, cap] = config.logit_cap;
  require(std::isfinite(scale) && scale > 0 && scale <= 1e6 && std::isfinite(cap) && cap >= 0 &&
              cap <= 1e6,
          source, ": logit_cap of scale ", scale, " and cap ", cap, ": expected up to 1e6");
  const float eps = config.post_norm_eps;
  require(std::isfinite(eps) && eps >= 0 && eps < 1, source, ": post_norm_eps = ", eps,
          ": expected 0 to 1");
  if (eps == 0) return;
  const bool plain = std::ranges::all_of(config.layers, [](const LayerConfig& layer) {
    return layer.attention() != nullptr && layer.dense_mlp() != nullptr;
  });
  require(plain && config.norm == NormKind::rms, source,
          ": post_norm_eps: expected layers of attention and a dense MLP with RMS norms");
}

void check_layers(const ModelConfig& config, std::string_view source, const FieldSpeller& spell) {
  check_layer_count(config.layer_count(), source, spell);
  const bool alike = uniform_layers(config.layers).has_value();
  for (std::int64_t i = 0; i < config.layer_count(); ++i) {
    const std::string place =
        std::string(source) + (alike ? "" : ": layers[" + std::to_string(i) + "]");
    require(config.window(i) >= 0 && config.window(i) <= kLargestWindow, place, ": window ",
            config.window(i), " is out of range");
    check_mixer(config, i, place);
    check_temperature(config, i, place);
    const DenseMlpConfig* mlp = config.layer(i).dense_mlp();
    require(mlp == nullptr || (mlp->hidden >= 1 && mlp->hidden <= kWidestMlp), place, ": ",
            spell("hidden"), " = ", mlp == nullptr ? 0 : mlp->hidden, ": expected 1 to ",
            kWidestMlp);
    if (config.layer(i).experts_mlp()) check_experts(config, *config.layer(i).experts_mlp(), place);
  }
}

}  // namespace

void check_layer_count(std::int64_t count, std::string_view source, const FieldSpeller& spell) {
  require(count >= 1 && count <= kMostLayers, source, ": ", spell("layers"), " = ", count,
          ": expected 1 to ", kMostLayers);
}

void check_config(const ModelConfig& config, std::string_view source, const FieldSpeller& spell) {
  check_layers(config, source, spell);
  for (const auto& field : kCounts) {
    const std::int64_t value = config.*field.member;
    require(value >= 1 && value <= field.largest, source, ": ", spell(field.name), " = ", value,
            ": expected 1 to ", field.largest);
  }
  require(config.head_dim % 2 == 0, source, ": ", spell("head_dim"), " = ", config.head_dim,
          ": expected an even number");
  require(config.heads % config.kv_heads == 0, source, ": ", config.heads,
          " heads are no multiple of ", config.kv_heads, " KV heads");
  require(config.heads * config.head_dim <= 1 << 22, source, ": ", config.heads, " heads of ",
          config.head_dim, " are too wide");
  require(std::isfinite(config.norm_eps) && config.norm_eps >= 0 && config.norm_eps < 1, source,
          ": ", spell("norm_eps"), " = ", config.norm_eps, ": expected 0 to 1");
  require(std::isfinite(config.rope_theta) && config.rope_theta >= 1, source,
          ": rope_theta = ", config.rope_theta, ": expected at least 1");
  check_scaling(config.rope_scaling, config.rope_dims(), source);
  check_additions(config, source);
  if (!config.mtp) return;
  require(config.mtp->attention() != nullptr, source, ": mtp: expected a layer with attention");
  check_config(mtp_model(config), std::string(source) + ": mtp", spell);
}

}  // namespace leq
