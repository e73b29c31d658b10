// Random checkpoints with two layers, one for each way in which the supported families differ.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "reference/model_tensors.h"
#include "reference/random_checkpoint.h"

namespace leq::test {

struct RandomModel {
  std::string name;
  Json config;
  RandomCheckpoint::Extras extras;
};

inline std::vector<RandomModel> random_models() {
  const Json gpt2 = {{"model_type", "gpt2"},
                     {"n_embd", 160},
                     {"n_layer", 2},
                     {"n_head", 5},
                     {"n_positions", 48},
                     {"vocab_size", 131},
                     {"layer_norm_epsilon", 1e-5},
                     {"activation_function", "gelu_new"}};
  Json gpt2_untied = gpt2;
  gpt2_untied["n_embd"] = 60;
  gpt2_untied["n_head"] = 3;
  gpt2_untied["n_inner"] = 100;
  gpt2_untied["tie_word_embeddings"] = false;
  const Json mha = small_config("llama", "LlamaForCausalLM", 6, 6);
  Json gqa = small_config("llama", "LlamaForCausalLM", 6, 2);
  gqa["tie_word_embeddings"] = true;
  Json biased = gqa;
  biased["attention_bias"] = biased["mlp_bias"] = true;
  Json mistral = small_config("mistral", "MistralForCausalLM", 6, 1);
  mistral["sliding_window"] = 7;
  mistral["head_dim"] = 20;
  Json qwen2 = small_config("qwen2", "Qwen2ForCausalLM", 6, 2);
  qwen2["tie_word_embeddings"] = true;
  qwen2["hidden_size"] = 192;
  Json qwen3 = small_config("qwen3", "Qwen3ForCausalLM", 6, 3);
  qwen3["head_dim"] = 32;
  Json mixtral = small_config("mixtral", "MixtralForCausalLM", 6, 2);
  mixtral["num_local_experts"] = 5;
  mixtral["num_experts_per_tok"] = 2;
  Json qwen3_moe = small_config("qwen3_moe", "Qwen3MoeForCausalLM", 6, 3);
  qwen3_moe["num_local_experts"] = 6;
  qwen3_moe["num_experts_per_tok"] = 3;
  qwen3_moe["moe_intermediate_size"] = 72;
  qwen3_moe["norm_topk_prob"] = true;
  qwen3_moe["mlp_only_layers"] = {1};
  using Experts = RandomCheckpoint::Experts;
  return {{"Gpt2Tied", gpt2, {}},
          {"Gpt2Untied", gpt2_untied, {}},
          {"LlamaMha", mha, {}},
          {"LlamaGqaTied", gqa, {}},
          {"LlamaWithAllBiases", biased, {.qkv_bias = true, .o_bias = true, .mlp_bias = true}},
          {"MistralMultiQuery", mistral, {}},
          {"Qwen2TiedWithBiases", qwen2, {.qkv_bias = true}},
          {"Qwen3WithHeadNorms", qwen3, {.qk_norm = true}},
          {"Mixtral", mixtral, {.experts = Experts::mixtral}},
          {"Qwen3MoeWithADenseLayer", qwen3_moe, {.qk_norm = true, .experts = Experts::single}}};
}

// Returns the tensors and deletes the checkpoint's folder.
inline ModelTensors make(const RandomModel& model) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("leq_random_" + std::to_string(::getpid()) + "_" + model.name);
  RandomCheckpoint checkpoint(folder);
  if (model.config.at("model_type") == "gpt2") {
    checkpoint.add_gpt2(model.config, "");
  } else {
    checkpoint.add_llama(model.config, model.extras);
  }
  ModelTensors tensors = read_tensors(import_hf(checkpoint.write(model.config)));
  std::filesystem::remove_all(folder);
  return tensors;
}

inline std::vector<Token> random_ids(int count, std::int64_t vocab, std::uint64_t seed = 3) {
  Random random(seed);
  std::vector<Token> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(static_cast<Token>(random.below(static_cast<std::uint32_t>(vocab))));
  }
  return ids;
}

// As in Gemma 4: layer 1 has heads of its own, of which a part rotates; norms of values, and
// factors on outputs of layers. `config`: three layers or more with norms of sublayer outputs.
inline ModelConfig with_own_heads(ModelConfig config) {
  const RopeConfig far = {
      1e6, {.kind = RopeScalingKind::proportional, .factor = 2, .rotated = 0.25}, 32};
  config.layers[0].attention()->qk_norm = config.layers[0].attention()->v_norm = true;
  *config.layers[1].attention() = {
      .rope = far, .qk_norm = true, .v_norm = true, .query_scale = 1, .own_heads = {1, 32}};
  config.layer_scales = true;
  return config;
}

}  // namespace leq::test
