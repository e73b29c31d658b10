// GPT-2: learned positions, layer norms with bias, GELU, weights stored [in][out] (Conv1D), q, k
// and v joined in c_attn.
#include "families/family.h"

namespace leq {

extern const Family kGpt2;
const Family kGpt2 = {
    .name = "GPT-2",
    .model_type = "gpt2",
    .architectures = {"GPT2LMHeadModel", "GPT2Model"},
    .keys = {.width = "n_embd",
             .layers = "n_layer",
             .heads = "n_head",
             .kv_heads = nullptr,
             .head_dim = nullptr,
             .hidden = "n_inner",
             .vocab = "vocab_size",
             .context = "n_positions",
             .norm_eps = "layer_norm_epsilon",
             .activation = "activation_function"},
    .activations = {"gelu_new", "gelu_pytorch_tanh"},
    .norm = NormKind::layer,
    .rotary = false,
    .gated = false,
    .hidden_is_optional = true,
    .tied_by_default = true,
    .qk_norm = false,
    .defaults = R"({"layer_norm_epsilon": 1e-5})",
    .windows = WindowRule::none,
    .qkv_bias = true,
    .output_bias = true,
    .mlp_bias = true,
    .attention_bias_key = nullptr,
    .mlp_bias_key = nullptr,
    .fixed = {{"scale_attn_weights", true},
              {"scale_attn_by_inverse_layer_idx", false},
              {"add_cross_attention", false}},
    .tensors =
        {
            {"token_embedding", "wte.weight"},
            {"position_embedding", "wpe.weight"},
            {"layers.{}.attention_norm", "h.{}.ln_1.weight"},
            {"layers.{}.attention_norm.bias", "h.{}.ln_1.bias"},
            {"layers.{}.q", "h.{}.attn.c_attn.weight", {.transposed = true, .part = 0, .parts = 3}},
            {"layers.{}.k", "h.{}.attn.c_attn.weight", {.transposed = true, .part = 1, .parts = 3}},
            {"layers.{}.v", "h.{}.attn.c_attn.weight", {.transposed = true, .part = 2, .parts = 3}},
            {"layers.{}.q.bias", "h.{}.attn.c_attn.bias", {.part = 0, .parts = 3}},
            {"layers.{}.k.bias", "h.{}.attn.c_attn.bias", {.part = 1, .parts = 3}},
            {"layers.{}.v.bias", "h.{}.attn.c_attn.bias", {.part = 2, .parts = 3}},
            {"layers.{}.o", "h.{}.attn.c_proj.weight", {.transposed = true}},
            {"layers.{}.o.bias", "h.{}.attn.c_proj.bias"},
            {"layers.{}.mlp_norm", "h.{}.ln_2.weight"},
            {"layers.{}.mlp_norm.bias", "h.{}.ln_2.bias"},
            {"layers.{}.up", "h.{}.mlp.c_fc.weight", {.transposed = true}},
            {"layers.{}.up.bias", "h.{}.mlp.c_fc.bias"},
            {"layers.{}.down", "h.{}.mlp.c_proj.weight", {.transposed = true}},
            {"layers.{}.down.bias", "h.{}.mlp.c_proj.bias"},
            {"final_norm", "ln_f.weight"},
            {"final_norm.bias", "ln_f.bias"},
        },
    .prefixes = {"transformer.", ""},
    .head = "lm_head.weight",
    .ignored = {".attn.bias", ".attn.masked_bias"},
};

}  // namespace leq
