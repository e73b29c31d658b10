// LFM2, dense and with experts: gated short convolutions, and attention in some layers.
#include <algorithm>

#include "base/error.h"
#include "families/layer_types.h"
#include "families/llama.h"

namespace leq {
namespace {

// The width of the MLP, which transformers computes when it makes the layers.
void adjust_hidden(Json& json, std::string_view source) {
  if (json.find_given("block_ff_dim") != nullptr) json["intermediate_size"] = json["block_ff_dim"];
  if (!json_get_or<bool>(json, "block_auto_adjust_ff_dim", true, source)) return;
  constexpr std::int64_t kLargest = 1 << 24;
  const auto given = json_get<std::int64_t>(json, "intermediate_size", source);
  const auto factor = json_get_or<double>(json, "block_ffn_dim_multiplier", 1, source);
  const auto multiple = json_get_or<std::int64_t>(json, "block_multiple_of", 256, source);
  require(given >= 1 && given <= kLargest && factor > 0 && factor <= 16 && multiple >= 1 &&
              multiple <= kLargest,
          source, ": intermediate_size ", given, ", block_ffn_dim_multiplier ", factor,
          " and block_multiple_of ", multiple, " give no width of the MLP");
  const std::int64_t thirds = 2 * given / 3;  // a whole number, as transformers computes it
  const auto scaled = static_cast<std::int64_t>(factor * static_cast<double>(thirds));
  json["intermediate_size"] = (scaled + multiple - 1) / multiple * multiple;
}

// What both families do.
void complete_common(Json& json, std::string_view source) {
  if (json.find_given("tie_embedding") != nullptr) {
    json["tie_word_embeddings"] = json["tie_embedding"];
  }
  const Json* full = json.find_given("full_attn_idxs");
  require(full == nullptr || full->is_array(), source,
          ": full_attn_idxs: expected a list of layers");
  const auto is_full = [&](std::int64_t layer, std::int64_t) {
    return full == nullptr ||
           std::ranges::any_of(*full, [&](const Json& one) { return one == layer; });
  };
  list_layer_types(json, source, is_full, "conv");
}

void complete(Json& json, std::string_view source) {
  complete_common(json, source);
  adjust_hidden(json, source);
}

// With experts, the first layers have a dense MLP.
void complete_moe(Json& json, std::string_view source) {
  complete_common(json, source);
  if (json.find_given("mlp_only_layers") != nullptr) return;
  const auto dense = json_get_or<std::int64_t>(json, "num_dense_layers", 2, source);
  const auto layers = json_get<std::int64_t>(json, "num_hidden_layers", source);
  require(dense >= 0 && dense <= layers, source, ": num_dense_layers = ", dense, ": expected 0 to ",
          layers);
  Json list = Json::array();
  for (std::int64_t i = 0; i < dense; ++i) list.push_back(i);
  json["mlp_only_layers"] = std::move(list);
}

void finish(const Json& json, std::string_view source, ModelConfig& config) {
  const ShortConvConfig conv = {json_get_or<std::int64_t>(json, "conv_L_cache", 3, source)};
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (json["layer_types"][i] == "conv") config.layers[i].mixer = conv;
  }
}

void finish_moe(const Json& json, std::string_view source, ModelConfig& config) {
  finish(json, source, config);
  for (LayerConfig& layer : config.layers) {
    ExpertsMlpConfig* experts = layer.experts_mlp();
    if (experts == nullptr) continue;
    experts->sigmoid = true;
    experts->choice_bias = json_get_or<bool>(json, "use_expert_bias", true, source);
    experts->weight_scale = json_get_or<double>(json, "routed_scaling_factor", 1, source);
  }
}

std::vector<TensorRule> lfm2_tensors() {
  return {
      {"token_embedding", "embed_tokens.weight"},
      {"layers.{}.attention_norm", "layers.{}.operator_norm.weight"},
      {"layers.{}.q", "layers.{}.self_attn.q_proj.weight"},
      {"layers.{}.k", "layers.{}.self_attn.k_proj.weight"},
      {"layers.{}.v", "layers.{}.self_attn.v_proj.weight"},
      {"layers.{}.q_norm", "layers.{}.self_attn.q_layernorm.weight"},
      {"layers.{}.k_norm", "layers.{}.self_attn.k_layernorm.weight"},
      {"layers.{}.o", "layers.{}.self_attn.out_proj.weight"},
      {"layers.{}.conv_in_norm", "layers.{}.operator_norm.weight"},
      {"layers.{}.conv_b", "layers.{}.conv.in_proj.weight", {.part = 0, .parts = 3}},
      {"layers.{}.conv_c", "layers.{}.conv.in_proj.weight", {.part = 1, .parts = 3}},
      {"layers.{}.conv_x", "layers.{}.conv.in_proj.weight", {.part = 2, .parts = 3}},
      {"layers.{}.conv_taps", "layers.{}.conv.conv.weight", {.taps_first = true}},
      {"layers.{}.conv_out", "layers.{}.conv.out_proj.weight"},
      {"layers.{}.mlp_norm", "layers.{}.ffn_norm.weight"},
      {"layers.{}.gate", "layers.{}.feed_forward.w1.weight"},
      {"layers.{}.up", "layers.{}.feed_forward.w3.weight"},
      {"layers.{}.down", "layers.{}.feed_forward.w2.weight"},
      {"final_norm", "embedding_norm.weight"},
  };
}

Family lfm2_like(std::string_view name, std::string_view model_type,
                 std::string_view architecture) {
  Family family = llama_like(name, model_type, architecture);
  family.keys.norm_eps = "norm_eps";
  family.defaults = R"({"norm_eps": 1e-5, "rope_theta": 1e6})";
  family.tied_by_default = true;
  family.qk_norm = true;
  family.own_mixers = "conv";
  family.fixed = {{"conv_bias", false}};
  family.tensors = lfm2_tensors();
  return family;
}

}  // namespace

extern const Family kLfm2;
const Family kLfm2 = [] {
  Family family = lfm2_like("LFM2", "lfm2", "Lfm2ForCausalLM");
  family.complete = complete;
  family.finish = finish;
  return family;
}();

extern const Family kLfm2Moe;
const Family kLfm2Moe = [] {
  Family family = lfm2_like("LFM2-MoE", "lfm2_moe", "Lfm2MoeForCausalLM");
  family.complete = complete_moe;
  family.finish = finish_moe;
  family.experts = {.experts = "num_experts",
                    .active = "num_experts_per_tok",
                    .hidden = "moe_intermediate_size",
                    .normalized = "norm_topk_prob",
                    .normalized_if_absent = true,
                    .sparse_step = nullptr,
                    .dense_layers = "mlp_only_layers",
                    .shared_hidden = nullptr};
  const std::vector<TensorRule> rules = {
      {"layers.{}.experts.{}.gate", "layers.{}.feed_forward.experts.{}.w1.weight"},
      {"layers.{}.experts.{}.up", "layers.{}.feed_forward.experts.{}.w3.weight"},
      {"layers.{}.experts.{}.down", "layers.{}.feed_forward.experts.{}.w2.weight"},
      {"layers.{}.experts.{}.gate",
       "layers.{}.feed_forward.experts.gate_up_proj",
       {.part = 0, .parts = 2, .stacked = true}},
      {"layers.{}.experts.{}.up",
       "layers.{}.feed_forward.experts.gate_up_proj",
       {.part = 1, .parts = 2, .stacked = true}},
      {"layers.{}.experts.{}.down", "layers.{}.feed_forward.experts.down_proj", {.stacked = true}},
      {"layers.{}.router", "layers.{}.feed_forward.gate.weight"},
      {"layers.{}.choice_bias", "layers.{}.feed_forward.expert_bias"},
  };
  family.tensors.insert(family.tensors.end(), rules.begin(), rules.end());
  return family;
}();

}  // namespace leq
