// Phi-3, Phi-3.5 and Phi-4: LLaMA's architecture with q, k, v and gate, up in joined tensors, RoPE
// on a part of each head, and LongRoPE.
#include "base/error.h"
#include "families/llama.h"

namespace leq {
namespace {

std::int64_t query_rows(const ModelConfig& config) { return config.heads * config.head_dim; }
std::int64_t key_rows(const ModelConfig& config) { return config.kv_heads * config.head_dim; }
std::int64_t phi3_rows(const ModelConfig& config) {
  return query_rows(config) + 2 * key_rows(config);
}

constexpr RowOrder kQueries = {phi3_rows, [](const ModelConfig&, std::int64_t row) { return row; }};
constexpr RowOrder kKeys = {phi3_rows, [](const ModelConfig& config, std::int64_t row) {
                              return query_rows(config) + row;
                            }};
constexpr RowOrder kValues = {phi3_rows, [](const ModelConfig& config, std::int64_t row) {
                                return query_rows(config) + key_rows(config) + row;
                              }};

std::vector<TensorRule> phi3_tensors() {
  constexpr std::string_view kJoined = "layers.{}.self_attn.qkv_proj.weight";
  constexpr std::string_view kGateUp = "layers.{}.mlp.gate_up_proj.weight";
  return {
      {"token_embedding", "embed_tokens.weight"},
      {"layers.{}.attention_norm", "layers.{}.input_layernorm.weight"},
      {"layers.{}.q", kJoined, {.part = 0, .parts = 3, .order = &kQueries}},
      {"layers.{}.k", kJoined, {.part = 1, .parts = 3, .order = &kKeys}},
      {"layers.{}.v", kJoined, {.part = 2, .parts = 3, .order = &kValues}},
      {"layers.{}.o", "layers.{}.self_attn.o_proj.weight"},
      {"layers.{}.mlp_norm", "layers.{}.post_attention_layernorm.weight"},
      {"layers.{}.gate", kGateUp, {.part = 0, .parts = 2}},
      {"layers.{}.up", kGateUp, {.part = 1, .parts = 2}},
      {"layers.{}.down", "layers.{}.mlp.down_proj.weight"},
      {"final_norm", "norm.weight"},
  };
}

// LongRoPE's older names.
void complete_phi3(Json& json, std::string_view source) {
  const bool older = json.find_given("rope_parameters") == nullptr;
  if (older && json.find_given("rope_scaling") == nullptr) return;
  Json& rope = json[older ? "rope_scaling" : "rope_parameters"];
  require(rope.is_object(), source, ": rope_scaling: expected an object");
  if (rope.find_given("long_factor") == nullptr) return;
  for (const char* name : {"type", "rope_type"}) {
    const Json* type = rope.find_given(name);
    if (type != nullptr && (*type == "su" || *type == "yarn")) rope[name] = "longrope";
  }
}

}  // namespace

extern const Family kPhi3;
const Family kPhi3 = [] {
  Family family = llama_like("Phi-3", "phi3", "Phi3ForCausalLM");
  family.defaults = R"({"rms_norm_eps": 1e-5, "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096})";
  family.windows = WindowRule::named;
  family.partial_rotary = 1;
  family.complete = complete_phi3;
  family.fixed = {{"attention_bias", false}};
  family.tensors = phi3_tensors();
  return family;
}();

}  // namespace leq
