#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/hf_import.h"
#include "errors.h"
#include "model/linear_sites.h"
#include "shared_data.h"

namespace leq {
namespace {

std::string error_of(const Json& json) {
  return test::error_of([&] { import_hf_config(json.dump(), "config.json"); });
}

Json llama() {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 2048},
          {"intermediate_size", 5632},
          {"num_hidden_layers", 22},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 4},
          {"vocab_size", 32000},
          {"max_position_embeddings", 2048},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", false}};
}

ModelConfig read(const Json& json) { return import_hf_config(json.dump(), "config.json"); }

// The classes' defaults in transformers 5.24.
TEST(HfConfig, ANormWithoutEpsilonHasItsClassesDefault) {
  Json config = llama();
  config.erase("rms_norm_eps");
  EXPECT_EQ(read(config).norm_eps, 1e-6f);
  config["model_type"] = "ministral3";
  config["architectures"] = {"Ministral3ForCausalLM"};
  EXPECT_EQ(read(config).norm_eps, 1e-5f);
  config["model_type"] = "phi3";
  config["architectures"] = {"Phi3ForCausalLM"};
  EXPECT_EQ(read(config).norm_eps, 1e-5f);
}

TEST(HfConfig, MixtralWithoutThetaHasItsClassesDefault) {
  Json config = llama();
  config["model_type"] = "mixtral";
  config["architectures"] = {"MixtralForCausalLM"};
  config["num_local_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  EXPECT_EQ(read(config).ropes().at(0).theta, 1e6);
  config["rope_theta"] = 500;
  EXPECT_EQ(read(config).ropes().at(0).theta, 500);
}

// Like transformers 5.24: a number beside the only table, that of the table, the model's context.
TEST(HfConfig, TheOriginalContextIsReadFromThreePlaces) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  for (const char* type : {"yarn", "llama3", "longrope"}) {
    SCOPED_TRACE(type);
    Json table = {{"rope_type", type}};
    if (table["rope_type"] == "longrope") {
      table["short_factor"] = table["long_factor"] = std::vector<double>(32, 1.5);
    } else {
      table["factor"] = 4.0;
    }
    const auto scaling = [&](const char* key, const Json& rope, const Json& beside) {
      Json json = llama();
      json["layer_types"] = std::vector<std::string>(22, "full_attention");
      json[kOriginal] = beside;
      json[key] = rope;
      return read(json).ropes().at(0).scaling;
    };
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      EXPECT_EQ(scaling(key, table, nullptr).original_context, 2048);
      EXPECT_EQ(scaling(key, table, 32).original_context, 32);
      Json full = table;
      full[kOriginal] = 64;
      EXPECT_EQ(scaling(key, full, nullptr).original_context, 64);
      EXPECT_EQ(scaling(key, full, 32).original_context, 32);
      EXPECT_EQ(scaling(key, full, 32).factor, full.contains("factor") ? 4 : 64);
    }
    const Json by_kind = {{"full_attention", table}};
    EXPECT_EQ(scaling("rope_parameters", by_kind, 32).original_context, 2048);
  }
}

TEST(HfConfig, ReadsEveryPublicConfigOfOurFamilies) {
  LEQ_SHARED_OR_SKIP(folder, "data/configs");
  struct Want {
    const char* name;
    std::int64_t parameters;  // as published, in tenths of a billion
  };
  for (const Want& want : {Want{"Llama-3.1-8B", 80},
                           {"Llama-3.2-3B", 32},
                           {"Qwen2.5-3B", 31},
                           {"Qwen2.5-7B", 76},
                           {"Qwen2.5-14B", 148},
                           {"Qwen3-4B", 40},
                           {"Qwen3-8B", 82},
                           {"Qwen3-14B", 148},
                           {"Qwen3-32B", 328},
                           {"Qwen3-30B-A3B", 305},
                           {"llama-2-7b", 67},
                           {"llama-2-13b", 130},
                           {"TinyLlama-1.1B-Chat-v1.0", 11},
                           {"gpt2", 1},
                           {"Qwen2-7B-Instruct", 76}}) {
    const auto path = folder / want.name / "config.json";
    const ModelConfig config = import_hf_config(read_file(path, 1 << 20), path.string());
    EXPECT_EQ((parameter_count(config) + 50'000'000) / 100'000'000, want.parameters) << want.name;
  }
}

TEST(HfConfig, RefusesOtherArchitecturesByName) {
  LEQ_SHARED_OR_SKIP(folder, "data/configs");
  for (const auto& [name, word] : {std::pair{"Qwen-VL-Chat-Int4", "qwen"}}) {
    const auto path = folder / name / "config.json";
    test::expect_error([&] { import_hf_config(read_file(path, 1 << 20), path.string()); }, {word});
  }
}

TEST(HfConfig, ReadsTransformers4And5Spellings) {
  Json four = llama(), five = llama();
  four["rope_theta"] = 500000.0;
  four["rope_scaling"] = {{"rope_type", "llama3"},
                          {"factor", 32.0},
                          {"low_freq_factor", 1.0},
                          {"high_freq_factor", 4.0},
                          {"original_max_position_embeddings", 8192}};
  five["rope_parameters"] = four["rope_scaling"];
  five["rope_parameters"]["rope_theta"] = 500000.0;
  EXPECT_EQ(read(four), read(five));
  EXPECT_EQ(read(four).ropes().at(0).scaling.kind, RopeScalingKind::llama3);
}

TEST(HfConfig, MistralWindowFollowsTransformersDefaults) {
  Json json = llama();
  json["model_type"] = "mistral";
  json["architectures"] = {"MistralForCausalLM"};
  EXPECT_EQ(read(json).window(0), 4096);
  json["sliding_window"] = nullptr;
  EXPECT_EQ(read(json).window(0), 0);
  json["sliding_window"] = 128;
  EXPECT_EQ(read(json).window(21), 128);
}

TEST(HfConfig, QwenWindowStartsAtMaxWindowLayers) {
  Json json = llama();
  json["model_type"] = "qwen2";
  json["architectures"] = {"Qwen2ForCausalLM"};
  json["sliding_window"] = 512;
  json["max_window_layers"] = 20;
  EXPECT_EQ(read(json).window(0), 0);
  json["use_sliding_window"] = true;
  const ModelConfig config = read(json);
  EXPECT_EQ(config.window(19), 0);
  EXPECT_EQ(config.window(20), 512);
}

TEST(HfConfig, RefusesWhatItDoesNotComputeByName) {
  const auto with = [](const char* key, Json value) {
    Json json = llama();
    json[key] = std::move(value);
    return error_of(json);
  };
  EXPECT_NE(with("rope_scaling", {{"rope_type", "longrope"}, {"factor", 2.0}})
                .find("short_factor: expected a list"),
            std::string::npos);
  EXPECT_NE(with("hidden_act", "gelu").find("hidden_act \"gelu\""), std::string::npos);
  EXPECT_NE(with("quantization_config", {{"quant_method", "aqlm"}}).find("aqlm"),
            std::string::npos);
  EXPECT_NE(with("partial_rotary_factor", 0.5).find("partial_rotary_factor"), std::string::npos);
  EXPECT_NE(with("architectures", {"LlamaForSequenceClassification"})
                .find("LlamaForSequenceClassification"),
            std::string::npos);
}

TEST(HfConfig, RefusesShapesThatContradictThemselves) {
  const auto with = [](const char* key, Json value) {
    Json json = llama();
    json[key] = std::move(value);
    return error_of(json);
  };
  EXPECT_NE(with("num_key_value_heads", 5).find("no multiple"), std::string::npos);
  EXPECT_NE(with("num_attention_heads", 0), "");
  EXPECT_NE(with("head_dim", 63).find("even"), std::string::npos);
  EXPECT_NE(with("hidden_size", "2048"), "");
  EXPECT_NE(with("num_hidden_layers", -1), "");
  // Errors name the key in the file, not the field of the configuration.
  EXPECT_EQ(with("intermediate_size", 0),
            "config.json: intermediate_size = 0: expected 1 to 4194304");
  EXPECT_EQ(with("vocab_size", 0), "config.json: vocab_size = 0: expected 1 to 16777216");
  EXPECT_NE(with("rms_norm_eps", 2).find("config.json: rms_norm_eps = 2"), std::string::npos);
  EXPECT_NE(with("vocab_size", 1ll << 40), "");
  EXPECT_NE(with("intermediate_size", 1ll << 62), "");
  EXPECT_NE(with("hidden_size", 1ll << 62), "");
  EXPECT_NE(with("num_attention_heads", 1e308), "");
  Json windows = llama();
  windows["layer_types"] = std::vector<std::string>(22, "sliding_attention");
  windows["sliding_window"] = (1ll << 32) + 8;
  EXPECT_NE(error_of(windows).find("sliding_window"), std::string::npos);
  Json experts = llama();
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, Json>>{{"model_type", "gpt_oss"},
                                                 {"architectures", {"GptOssForCausalLM"}},
                                                 {"num_local_experts", 0}}) {
    experts[key] = value;
  }
  EXPECT_NE(error_of(experts).find("num_local_experts = 0"), std::string::npos);
}

TEST(HfConfig, RefusesCountsThatWouldTakeAllMemory) {
  Json json = llama();
  json["model_type"] = "lfm2_moe";
  json["architectures"] = {"Lfm2MoeForCausalLM"};
  json["num_hidden_layers"] = json["num_dense_layers"] = 1'000'000'000'000;
  json["layer_types"] = {"full_attention"};
  EXPECT_NE(error_of(json).find("num_hidden_layers = 1000000000000: expected 1 to 4096"),
            std::string::npos)
      << error_of(json);
  json = llama();
  json["model_type"] = "qwen3_moe";
  json["architectures"] = {"Qwen3MoeForCausalLM"};
  json["num_hidden_layers"] = json["num_experts"] = 4096;
  json["num_experts_per_tok"] = 1;
  json["moe_intermediate_size"] = 32;
  EXPECT_NE(error_of(json).find("16777216 experts in all layers, at most 131072"),
            std::string::npos)
      << error_of(json);
  json["num_experts"] = 32;
  EXPECT_EQ(error_of(json), "");
}

TEST(HfConfig, SurvivesTheConfigWrittenIntoAFile) {
  Json json = llama();
  json["model_type"] = "mistral";
  json["architectures"] = {"MistralForCausalLM"};
  json["sliding_window"] = 100;
  json["rope_scaling"] = {{"type", "yarn"},
                          {"factor", 4.0},
                          {"attention_factor", 1.25},
                          {"original_max_position_embeddings", 512}};
  const ModelConfig config = read(json);
  EXPECT_EQ(config_from_json(config_to_json(config), "again"), config);
}

// config.json of 4B as it is on the hub: transformers' defaults and keys of its version 4.
// Configurations as the hub has them, with the keys that transformers 5.24 computes others from.
TEST(HfConfig, Gemma4IsReadFromFewKeys) {
  const auto read = [](const char* type, Json keys) {
    keys["model_type"] = std::string(type) + "_text";
    const Json config = {{"model_type", type}, {"text_config", std::move(keys)}};
    return import_hf_config(config.dump(), "config.json");
  };
  Json dense = {{"hidden_size", 3840},      {"intermediate_size", 15360},
                {"num_hidden_layers", 48},  {"num_attention_heads", 16},
                {"num_key_value_heads", 8}, {"num_global_key_value_heads", 1},
                {"attention_k_eq_v", true}, {"final_logit_softcapping", 30.0}};
  const ModelConfig unified = read("gemma4_unified", dense);
  const AttentionConfig &near = *unified.layer(0).attention(), &far = *unified.layer(5).attention();
  EXPECT_EQ(unified.kv_heads_of(near), (KvHeads{8, 256}));
  EXPECT_EQ(unified.kv_heads_of(far), (KvHeads{1, 512}));
  EXPECT_EQ(near.rope, (RopeConfig{1e4}));
  EXPECT_EQ(far.rope,
            (RopeConfig{1e6, {.kind = RopeScalingKind::proportional, .rotated = 0.25}, 512}));
  EXPECT_TRUE(near.v_norm && far.v_norm && unified.layer_scales && unified.tied);
  EXPECT_EQ(near.query_scale, 1);
  EXPECT_EQ(unified.window(4), 1024);
  EXPECT_EQ(unified.window(5), 0);
  EXPECT_EQ(unified.window(47), 0);
  EXPECT_EQ(unified.logit_cap, (LogitCap{1, 30}));
  EXPECT_EQ(unified.layer_input, 0);
  dense["attention_k_eq_v"] = false;  // then num_global_key_value_heads has no effect
  EXPECT_EQ(read("gemma4_unified", dense).layer(5).attention()->own_heads, (KvHeads{8, 512}));

  const ModelConfig small = read("gemma4", {{"hidden_size", 1536},
                                            {"intermediate_size", 6144},
                                            {"num_hidden_layers", 35},
                                            {"num_key_value_heads", 1},
                                            {"num_kv_shared_layers", 20},
                                            {"use_double_wide_mlp", true}});
  EXPECT_EQ(small.layer_input, 256);
  EXPECT_EQ(small.cache_layers().size(), 15u);
  EXPECT_EQ(small.layer(15).attention()->kv_of, 14);
  EXPECT_EQ(small.layer(17).attention()->kv_of, 11);
  EXPECT_EQ(small.layer(14).dense_mlp()->hidden, 6144);
  EXPECT_EQ(small.layer(15).dense_mlp()->hidden, 12288);

  const ModelConfig mixture = read("gemma4", {{"hidden_size", 2816},
                                              {"intermediate_size", 2112},
                                              {"enable_moe_block", true},
                                              {"num_experts", 128},
                                              {"top_k_experts", 8},
                                              {"moe_intermediate_size", 704},
                                              {"hidden_size_per_layer_input", 0}});
  EXPECT_EQ(*mixture.layer(0).experts_mlp(), (ExpertsMlpConfig{.experts = 128,
                                                               .active = 8,
                                                               .hidden = 704,
                                                               .normalized = true,
                                                               .activation = Activation::gelu_tanh,
                                                               .dense_hidden = 2112}));
  EXPECT_THROW(read("gemma4", {{"use_bidirectional_attention", "all"}}), Error);
  EXPECT_THROW(read("gemma4", {{"num_kv_shared_layers", 30}}), Error);
  EXPECT_THROW(read("gemma4", {{"vocab_size_per_layer_input", 1000}}), Error);
}

TEST(HfConfig, Gemma3IsReadFromFewKeys) {
  const auto with = [](const char* key, const Json& value) {
    Json text = {{"model_type", "gemma3_text"},
                 {"hidden_size", 2560},
                 {"num_hidden_layers", 34},
                 {"intermediate_size", 10240},
                 {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
                 {"sliding_window", 1024}};
    if (std::string_view(key) == "rope_parameters") text["rope_scaling"] = nullptr;
    text[key] = value;
    const Json config = {{"architectures", {"Gemma3ForConditionalGeneration"}},
                         {"model_type", "gemma3"},
                         {"text_config", text}};
    return import_hf_config(config.dump(), "config.json");
  };
  const ModelConfig config = with("use_cache", true);
  EXPECT_TRUE(config.tied);
  EXPECT_EQ(config.vocab, 262208);
  EXPECT_EQ(config.context, 131072);
  EXPECT_EQ(config.heads, 8);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.norm_eps, 1e-6f);
  EXPECT_EQ(config.post_norm_eps, 1e-6f);
  EXPECT_DOUBLE_EQ(config.embedding_scale, std::sqrt(2560.0));
  const RopeConfig near = {.theta = 1e4};
  const RopeConfig far = {.theta = 1e6, .scaling = {.kind = RopeScalingKind::linear, .factor = 8}};
  for (std::int64_t i = 0; i < 34; ++i) {
    const bool full = i % 6 == 5;
    EXPECT_EQ(config.window(i), full ? 0 : 1024) << i;
    EXPECT_EQ(config.layer(i).attention()->rope, full ? far : near) << i;
    EXPECT_EQ(config.layer(i).dense_mlp()->activation, Activation::gelu_tanh);
    EXPECT_EQ(config.layer(i).attention()->query_scale, 0);  // 1 / sqrt(head_dim)
  }
  EXPECT_DOUBLE_EQ(with("query_pre_attn_scalar", 168).layer(0).attention()->query_scale,
                   1 / std::sqrt(168.0));
  EXPECT_EQ(with("sliding_window_pattern", 2).window(1), 0);
  EXPECT_EQ(with("rope_local_base_freq", 5e3).layer(0).attention()->rope->theta, 5e3);
  const Json nested = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}}}};
  EXPECT_EQ(with("rope_parameters", nested).layer(5).attention()->rope, far);
  EXPECT_EQ(with("rope_parameters", nested).layer(0).attention()->rope, near);
  EXPECT_THROW(with("rope_parameters", {{"rope_theta", 1e6}}), Error);
  EXPECT_EQ(with("final_logit_softcapping", 30.0).logit_cap, (LogitCap{1, 30}));
  EXPECT_THROW(with("attn_logit_softcapping", 50.0), Error);
  EXPECT_TRUE(with("use_bidirectional_attention", true).both_ways());
  EXPECT_THROW(with("sliding_window_pattern", 0), Error);
  EXPECT_THROW(with("num_hidden_layers", 1e9), Error);
  EXPECT_THROW(with("query_pre_attn_scalar", 0), Error);
}

// Which layers have RoPE is a list or an interval; those without may have a window.
TEST(HfConfig, SmolLm3HasLayersWithoutRope) {
  const auto with = [](const Json& more) {
    Json json = llama();
    json["model_type"] = "smollm3";
    json["architectures"] = {"SmolLM3ForCausalLM"};
    json["num_hidden_layers"] = 4;
    for (const auto& [key, value] : more.items()) json[key] = value;
    return read(json);
  };
  const auto ropes = [](const ModelConfig& config) {
    std::vector<bool> found;
    for (const LayerConfig& layer : config.layers) {
      found.push_back(layer.attention()->rope.has_value());
    }
    return found;
  };
  using Flags = std::vector<bool>;
  EXPECT_EQ(ropes(with(Json::object())), (Flags{true, true, true, false}));
  EXPECT_EQ(ropes(with({{"no_rope_layer_interval", 2}})), (Flags{true, false, true, false}));
  const ModelConfig listed = with({{"no_rope_layers", {0, 1, 1, 0}}});
  EXPECT_EQ(ropes(listed), (Flags{false, true, true, false}));
  EXPECT_EQ(listed.window(0), 0);
  const ModelConfig windows = with(
      {{"no_rope_layers", {0, 1, 1, 0}}, {"use_sliding_window", true}, {"sliding_window", 64}});
  EXPECT_EQ(windows.window(0), 64);
  EXPECT_EQ(windows.window(1), 0);
  EXPECT_THROW(with({{"no_rope_layers", {0, 1, 1}}}), Error);
  EXPECT_THROW(with({{"no_rope_layers", {0, 1, 1, 2}}}), Error);
  EXPECT_THROW(with({{"no_rope_layer_interval", 0}}), Error);
}

// A factor on sublayer outputs becomes one on embeddings, and the eps of norms.
TEST(HfConfig, FactorsOfGraniteAreFolded) {
  const auto with = [](const char* key, const Json& value) {
    Json json = llama();
    json["model_type"] = "granite";
    json["architectures"] = {"GraniteForCausalLM"};
    json["embedding_multiplier"] = 12;
    json["attention_multiplier"] = 0.015625;
    json["residual_multiplier"] = 0.25;
    json["logits_scaling"] = 16;
    json[key] = value;
    return read(json);
  };
  const ModelConfig config = with("use_cache", true);
  EXPECT_EQ(config.embedding_scale, 48);
  EXPECT_FLOAT_EQ(config.norm_eps, 16e-5f);
  EXPECT_EQ(config.layer(21).attention()->query_scale, 0.015625);
  EXPECT_EQ(with("attention_multiplier", nullptr).layer(0).attention()->query_scale, 1);
  EXPECT_THROW(with("residual_multiplier", 0), Error);
  EXPECT_THROW(with("scale_emb", 12), Error);
}

TEST(HfConfig, Granite4IsReadWhereItIsDense) {
  const auto with = [](const char* key, const Json& value) {
    Json json = llama();
    json["model_type"] = "granitemoehybrid";
    json["architectures"] = {"GraniteMoeHybridForCausalLM"};
    json["num_hidden_layers"] = 2;
    json["num_local_experts"] = 0;
    json["shared_intermediate_size"] = 8192;
    json["position_embedding_type"] = "rope";
    json["layer_types"] = {"attention", "attention"};
    json[key] = value;
    return read(json);
  };
  const ModelConfig config = with("use_cache", true);
  EXPECT_EQ(config.widest_mlp(), 8192);
  EXPECT_TRUE(config.layer(0).attention()->rope.has_value());
  EXPECT_FALSE(with("position_embedding_type", "nope").layer(0).attention()->rope.has_value());
  EXPECT_THROW(with("num_local_experts", 8), Error);
  EXPECT_THROW(with("num_local_experts", nullptr), Error);
  EXPECT_THROW(with("layer_types", {"attention", "mamba"}), Error);
  EXPECT_THROW(with("layer_types", nullptr), Error);
}

// Phi's LongRoPE: older names, and numbers at the top level or that follow from others.
TEST(HfConfig, LongRopeOfPhi) {
  const auto with = [](const char* key, const Json& value, const char* type = "longrope") {
    Json json = llama();
    json["model_type"] = "phi3";
    json["architectures"] = {"Phi3ForCausalLM"};
    json["hidden_size"] = 32 * 8;
    json["max_position_embeddings"] = 131072;
    json["original_max_position_embeddings"] = 4096;
    json["partial_rotary_factor"] = 0.75;
    json["rope_scaling"] = {
        {"type", type}, {"short_factor", {1.0, 1.5, 2.0}}, {"long_factor", {1, 16, 64}}};
    json[key] = value;
    return read(json);
  };
  RopeScaling want = {.kind = RopeScalingKind::longrope, .factor = 32, .original_context = 4096};
  want.short_factor = {1, 1.5, 2};
  want.long_factor = {1, 16, 64};
  for (const char* type : {"longrope", "su", "yarn"}) {
    const ModelConfig config = with("use_cache", true, type);
    EXPECT_EQ(config.ropes().at(0).scaling, want) << type;
    EXPECT_EQ(config.ropes().at(0).dims, 6);
    EXPECT_EQ(config_from_json(config_to_json(config), "again"), config);
  }
  EXPECT_EQ(with("original_max_position_embeddings", nullptr).ropes().at(0).scaling, want);
  EXPECT_EQ(with("rope_scaling", nullptr).ropes().at(0).scaling, RopeScaling());
  EXPECT_EQ(with("sliding_window", 2047).window(3), 2047);
  EXPECT_THROW(with("partial_rotary_factor", 1.0), Error);  // needs four numbers
  EXPECT_THROW(with("original_max_position_embeddings", 0), Error);
  const Json negative = {
      {"type", "longrope"}, {"short_factor", {1, 1, 1}}, {"long_factor", {1, 1, -1}}};
  EXPECT_THROW(with("rope_scaling", negative), Error);
  const Json text = {{"type", "longrope"}, {"short_factor", {1, 1, 1}}, {"long_factor", "1"}};
  EXPECT_THROW(with("rope_scaling", text), Error);
}

TEST(HfConfig, AnLfm2WithExpertsMayHaveNoDenseLayer) {
  const auto path =
      std::filesystem::path(LEQ_SOURCE_DIR) / "tests/golden/families/lfm2-moe/config.json";
  Json json = parse_json(read_file(path, 1 << 20), "config.json");
  json["num_dense_layers"] = 0;
  const ModelConfig config = read(json);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    EXPECT_NE(config.layers[i].experts_mlp(), nullptr) << i;
  }
  json["num_dense_layers"] = -1;
  EXPECT_NE(error_of(json).find("num_dense_layers = -1: expected 0 to 5"), std::string::npos);
}

// Values of Muse Glimmer's keys that are not supported are refused with the key's name.
TEST(HfConfig, MuseGlimmerIsReadOrRefusedByKey) {
  const auto path =
      std::filesystem::path(LEQ_SOURCE_DIR) / "tests/golden/families/muse-glimmer/config.json";
  const std::string text = read_file(path, 1 << 20);
  const auto with = [&](const char* key, const Json& value) {
    Json config = parse_json(text, "config.json");
    config["text_config"][key] = value;
    try {
      import_hf_config(config.dump(), "config.json");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const ModelConfig config = import_hf_config(text, "config.json");
  EXPECT_EQ(config.logit_cap, (LogitCap{0.35355339059327373, 5}));
  EXPECT_EQ(config.post_norm_eps, 1e-8f);
  EXPECT_EQ(config.window(0), 8);
  EXPECT_TRUE(config.layer(0).attention()->rope.has_value());
  EXPECT_EQ(config.window(1), 0);
  EXPECT_FALSE(config.layer(1).attention()->rope.has_value());
  EXPECT_EQ(with("layer_types", nullptr), "");
  EXPECT_EQ(with("layer_rope_theta", nullptr), "");
  Json two = parse_json(text, "config.json");
  two["text_config"]["layer_rope_theta"] = {2e4, 0, 1e4, 5e4, 5e4, 0};
  const ModelConfig tables = import_hf_config(two.dump(), "config.json");
  ASSERT_EQ(tables.ropes().size(), 3u);
  EXPECT_EQ(tables.layer(0).attention()->rope->theta, 2e4);
  EXPECT_EQ(tables.layer(2).attention()->rope->theta, 1e4);
  EXPECT_EQ(tables.layer(3).attention()->rope->theta, 5e4);
  EXPECT_FALSE(tables.layer(5).attention()->rope.has_value());
  EXPECT_NE(with("layer_rope_theta", Json::array({0, 0})).find("a list of 6 numbers"),
            std::string::npos);
  EXPECT_NE(with("final_logit_softcapping", 0).find("final_logit_softcapping"), std::string::npos);
  EXPECT_NE(with("post_norm_eps", 0).find("post_norm_eps"), std::string::npos);
  EXPECT_NE(with("attn_logit_softcapping", 30).find("attn_logit_softcapping"), std::string::npos);
}

}  // namespace
}  // namespace leq
