// Muse Glimmer, Meta's successor of LLaMA: three layers with a window and RoPE, then one with full
// attention and no RoPE; norms of embeddings, heads and sublayer outputs; an output gate of
// attention; capped logits.
#include "base/error.h"
#include "families/layer_types.h"
#include "families/llama.h"

namespace leq {
namespace {

// The defaults of MuseGlimmerTextConfig in transformers 5.24.
constexpr float kPostNormEps = 1e-8f, kQueryGain = 3.87f;
constexpr double kLogitCap = 20, kLogitScale = 0.19611613513818404;

std::vector<TensorRule> muse_tensors() {
  return {
      {"token_embedding", "embed_tokens.weight", {}, {.normed_rows = true}},
      {"layers.{}.attention_norm", "layers.{}.input_layernorm.weight", {}, kAroundZero},
      {"layers.{}.q", "layers.{}.self_attn.q_proj.weight"},
      {"layers.{}.k", "layers.{}.self_attn.k_proj.weight"},
      {"layers.{}.v", "layers.{}.self_attn.v_proj.weight"},
      {"layers.{}.attention_gate", "layers.{}.self_attn.gate_proj.weight"},
      {"layers.{}.q_norm", "", {}, {.constant = kQueryGain, .constant_key = "qk_scale_factor"}},
      {"layers.{}.k_norm", "", {}, {.constant = 1}},
      {"layers.{}.o", "layers.{}.self_attn.o_proj.weight"},
      {"layers.{}.attention_post_norm",
       "layers.{}.post_attention_layernorm.weight",
       {},
       kAroundZero},
      {"layers.{}.mlp_norm", "layers.{}.pre_feedforward_layernorm.weight", {}, kAroundZero},
      {"layers.{}.gate", "layers.{}.mlp.gate_proj.weight"},
      {"layers.{}.up", "layers.{}.mlp.up_proj.weight"},
      {"layers.{}.down", "layers.{}.mlp.down_proj.weight"},
      {"layers.{}.mlp_post_norm", "layers.{}.post_feedforward_layernorm.weight", {}, kAroundZero},
      {"final_norm", "norm.weight"},
  };
}

// Of every four layers, counted from the last, one has full attention and no RoPE.
bool is_full(std::int64_t layer, std::int64_t layers) { return (layers - 1 - layer) % 4 == 0; }

// layer_rope_theta says layer by layer where there is RoPE; 0 means none.
void read_rope_layers(const Json& json, std::string_view source, ModelConfig& config) {
  constexpr const char* kThetas = "layer_rope_theta";
  const std::int64_t layers = config.layer_count();
  const Json* thetas = json.find_given(kThetas);
  require(thetas == nullptr || (thetas->is_array() && std::ssize(*thetas) == layers), source, ": ",
          kThetas, ": expected a list of ", layers, " numbers");
  for (std::int64_t i = 0; i < layers; ++i) {
    auto& rope = config.layers[static_cast<std::size_t>(i)].attention()->rope;
    if (thetas != nullptr) {
      const Json& theta = (*thetas)[i];
      require(theta.is_number(), source, ": ", kThetas, "[", i, "]: expected a number");
      rope->theta = theta.get<double>();
    }
    if (thetas != nullptr ? rope->theta == 0 : is_full(i, layers)) rope.reset();
  }
}

void read_muse(const Json& json, std::string_view source, ModelConfig& config) {
  require(!config.tied, source, ": tie_word_embeddings = true: ", config.family,
          " norms its embeddings, a head of the same rows is not supported");
  config.post_norm_eps = json_get_or<float>(json, "post_norm_eps", kPostNormEps, source);
  require(config.post_norm_eps > 0, source, ": post_norm_eps = ", config.post_norm_eps,
          ": expected above 0");
  config.logit_cap.scale = json_get_or<double>(json, "output_multiplier", kLogitScale, source);
  config.logit_cap.cap = json_get_or<double>(json, "final_logit_softcapping", kLogitCap, source);
  require(config.logit_cap.cap > 0, source, ": final_logit_softcapping = ", config.logit_cap.cap,
          ": expected above 0");
  read_rope_layers(json, source, config);
}

}  // namespace

extern const Family kMuseGlimmer;
const Family kMuseGlimmer = [] {
  Family family = llama_like("Muse Glimmer", "muse_glimmer_text", "MuseGlimmerForCausalLM");
  family.keys.activation = "hidden_activation";
  family.tensors = muse_tensors();
  family.defaults = R"({"head_dim": 128, "max_position_embeddings": 131072,
    "sliding_window": 2048, "rms_norm_eps": 1e-5})";
  family.complete = [](Json& json, std::string_view source) {
    list_layer_types(json, source, is_full);
  };
  family.qk_norm = true;
  family.output_gate = true;
  family.finish = read_muse;
  family.computes = {"final_logit_softcapping"};
  family.fixed = {{"attention_bias", false}};
  return family;
}();

}  // namespace leq
