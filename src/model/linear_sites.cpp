#include "model/linear_sites.h"

#include <utility>

namespace leq {
namespace {

// qkv [W -> (H + 2 H_kv) d], with an output gate [W -> (2 H + 2 H_kv) d]; o [H d -> W]
void add_sites(const ModelConfig& config, const AttentionConfig& attention,
               std::vector<LinearSite>& sites) {
  const std::int64_t query = config.heads * config.head_dim;
  const std::int64_t key = config.kv_heads * config.head_dim;
  const bool bias = attention.qkv_bias;
  LinearSite qkv = {"qkv",
                    Sublayer::mixer,
                    config.width,
                    Axis::stream,
                    {{"q", query, Axis::query_heads, bias},
                     {"k", key, Axis::kv_heads, bias},
                     {"v", key, Axis::kv_heads, bias}},
                    NormSpec{"attention_norm", config.width, config.block_norm()},
                    "",
                    {}};
  if (attention.output_gate) {
    qkv.weights.push_back({"attention_gate", query, Axis::query_heads});
  }
  if (attention.qk_norm) {
    qkv.head_norms = {{"q_norm", config.head_dim, config.norm},
                      {"k_norm", config.head_dim, config.norm}};
  }
  sites.push_back(std::move(qkv));
  sites.push_back({"o",
                   Sublayer::mixer,
                   query,
                   Axis::query_heads,
                   {{"o", config.width, Axis::stream, attention.output_bias}},
                   std::nullopt,
                   "v",
                   {}});
}

// delta_in [W -> channels + H_v d_v], beside it delta_gates [W -> 2 H_v]; delta_out [H_v d_v -> W]
void add_sites(const ModelConfig& config, const DeltaNetConfig& delta,
               std::vector<LinearSite>& sites) {
  LinearSite in = {"delta_in",
                   Sublayer::mixer,
                   config.width,
                   Axis::stream,
                   {{"delta_qkv", delta.channels(), Axis::delta},
                    {"delta_z", delta.values(), Axis::delta},
                    {"delta_b", delta.value_heads, Axis::delta, false, true},
                    {"delta_a", delta.value_heads, Axis::delta, false, true}},
                   NormSpec{"delta_in_norm", config.width, config.block_norm()},
                   "",
                   {}};
  in.vectors = {{"delta_conv", delta.conv_taps * delta.channels()},
                {"delta_a_log", delta.value_heads},
                {"delta_dt_bias", delta.value_heads},
                {"delta_norm", delta.value_dim}};
  sites.push_back(std::move(in));
  sites.push_back({"delta_out",
                   Sublayer::mixer,
                   delta.values(),
                   Axis::delta,
                   {{"delta_out", config.width, Axis::stream}},
                   std::nullopt,
                   "",
                   {}});
}

// gate_up [W -> 2 F], or up alone [W -> F]; down [F -> W]
void add_sites(const ModelConfig& config, const DenseMlpConfig& mlp,
               std::vector<LinearSite>& sites) {
  LinearSite gate_up = {"gate_up",    Sublayer::mlp,
                        config.width, Axis::stream,
                        {},           NormSpec{"mlp_norm", config.width, config.block_norm()},
                        "",           {}};
  if (mlp.gated) gate_up.weights.push_back({"gate", mlp.hidden, Axis::mlp, mlp.bias});
  gate_up.weights.push_back({"up", mlp.hidden, Axis::mlp, mlp.bias});
  sites.push_back(std::move(gate_up));
  // up is a factor of SwiGLU's product, so it can take a scale; silu and GELU cannot.
  sites.push_back({"down",
                   Sublayer::mlp,
                   mlp.hidden,
                   Axis::mlp,
                   {{"down", config.width, Axis::stream, mlp.bias}},
                   std::nullopt,
                   mlp.gated ? "up" : "",
                   {}});
}

}  // namespace

std::vector<LinearSite> linear_sites(const ModelConfig& config, std::int64_t layer) {
  std::vector<LinearSite> sites;
  const auto add = [&](const auto& kind) { add_sites(config, kind, sites); };
  std::visit(add, config.layer(layer).mixer);
  std::visit(add, config.layer(layer).mlp);
  return sites;
}

}  // namespace leq
