// Tests text models within multimodal checkpoints, under every prefix that tools gave their
// tensors; rope parameters; families that are recognized but not supported.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "convert/hf_import.h"
#include "errors.h"
#include "reference/random_checkpoint.h"
#include "temporary_folder.h"

namespace leq::wrappers {
namespace {

Json text_config() {
  Json text = test::small_config("mistral", "MistralForCausalLM");
  text["sliding_window"] = nullptr;
  return text;
}

// As in Mistral Small 3, the wrapper says that the head is tied, but the tensors are not.
Json wrapper(const Json& text, const std::string& type = "mistral3",
             const std::string& architecture = "Mistral3ForConditionalGeneration") {
  return {{"model_type", type},
          {"architectures", {architecture}},
          {"tie_word_embeddings", true},
          {"eos_token_id", {5, 6}},
          {"text_config", text},
          {"vision_config", {{"model_type", "pixtral"}, {"hidden_size", 1024}}}};
}

std::string refusal(const Json& config) {
  return test::error_of([&] { (void)import_hf_config(config.dump(), "config.json"); });
}

std::vector<float> first_row(const TensorInput& tensor) {
  std::vector<float> row(static_cast<std::size_t>(tensor.shape.back()));
  tensor.read(0, tensor.shape.size() == 2 ? 1 : tensor.shape[0], row);
  return row;
}

struct Spelling {
  const char *model, *head;
};

TEST(Wrappers, AreReadUnderEveryPrefixAndLeaveTowersOut) {
  const test::TemporaryFolder folder;
  const auto make = [&](const Json& config, const Spelling& names, bool towers) {
    test::RandomCheckpoint checkpoint(folder.path() / "hf", 11);
    checkpoint.add_llama(text_config(), {});
    if (towers) {
      checkpoint.add("vision_tower.patch_conv.weight", {4, 3}, 1);
      checkpoint.add("model.visual.blocks.0.norm.weight", {8}, 1);
      checkpoint.add("multi_modal_projector.linear_1.weight", {4, 4}, 1);
      checkpoint.add("mtp.fc.weight", {4, 4}, 1);
    }
    checkpoint.rename("model.layers.", std::string(names.model) + "layers.");
    checkpoint.rename("model.embed", std::string(names.model) + "embed");
    checkpoint.rename("model.norm", std::string(names.model) + "norm");
    checkpoint.rename("lm_head.weight", names.head);
    return import_hf(checkpoint.write(config));
  };
  const ImportedModel plain = make(text_config(), {"model.", "lm_head.weight"}, false);
  for (const Spelling& names : {Spelling{"model.language_model.", "lm_head.weight"},
                                {"language_model.model.", "language_model.lm_head.weight"},
                                {"model.language_model.", "model.language_model.lm_head.weight"},
                                {"model.", "lm_head.weight"}}) {
    const ImportedModel model = make(wrapper(text_config()), names, true);
    EXPECT_FALSE(model.config.tied) << names.model;
    ModelConfig config = model.config;
    EXPECT_EQ(config, plain.config) << names.model;
    ASSERT_EQ(model.tensors.size(), plain.tensors.size());
    for (std::size_t i = 0; i < model.tensors.size(); ++i) {
      EXPECT_EQ(model.tensors[i].name, plain.tensors[i].name);
      EXPECT_EQ(first_row(model.tensors[i]), first_row(plain.tensors[i])) << names.model << i;
    }
    // Two further notes: both tables are kept, and the split pattern is not Mistral's.
    ASSERT_EQ(model.notes.size(), 3u) << names.model;
    EXPECT_NE(model.notes[2].find("pattern"), std::string::npos) << model.notes[2];
    EXPECT_EQ(
        model.notes[0],
        "left out: 1 tensor of a head of multi-token prediction, 2 tensors of a vision tower, 1 "
        "tensor of its projector; the text model alone is run");
    EXPECT_EQ(model.generation.end_tokens, (std::vector<Token>{5, 6}));
  }
}

TEST(Wrappers, TakeEndTokensFromGenerationThenFromTheWrapperThenFromTheText) {
  const test::TemporaryFolder folder;
  Json text = text_config();
  text["eos_token_id"] = 7;
  Json config = wrapper(text);
  const auto ends = [&](const char* generation) {
    test::RandomCheckpoint checkpoint(folder.path() / "hf");
    checkpoint.add_llama(text, {});
    const auto path = checkpoint.write(config);
    if (generation != nullptr) std::ofstream(path / "generation_config.json") << generation;
    return import_hf(path).generation.end_tokens;
  };
  EXPECT_EQ(ends(R"({"eos_token_id": [8, 9]})"), (std::vector<Token>{8, 9}));
  EXPECT_EQ(ends("{}"), (std::vector<Token>{5, 6}));
  config.erase("eos_token_id");
  EXPECT_EQ(ends(nullptr), std::vector<Token>{7});
}

TEST(Wrappers, AreRefusedForTheTextModelThatTheyHold) {
  Json text = text_config();
  text["model_type"] = "mistral4";
  EXPECT_NE(refusal(wrapper(text)).find("\"mistral4\" is not supported (Mistral Small 4"),
            std::string::npos)
      << refusal(wrapper(text));
  EXPECT_NE(refusal(wrapper(text_config(), "llava", "LlavaForImageEmbedding"))
                .find("LlavaForImageEmbedding"),
            std::string::npos);
  EXPECT_EQ(refusal(wrapper(text_config(), "llava", "LlavaForConditionalGeneration")), "");
  Json list = wrapper(text_config());
  list["text_config"] = Json::array();
  EXPECT_NE(refusal(list).find("text_config"), std::string::npos);
  for (const char* type : {"llama4", "mistral_large4", "qwen4_exp", "cohere2"}) {
    Json config = text_config();
    config["model_type"] = type;
    EXPECT_NE(refusal(config).find("is not supported ("), std::string::npos) << refusal(config);
  }
  Json quantized = wrapper(text_config());
  quantized["quantization_config"] = {{"quant_method", "bitsandbytes"}};
  EXPECT_NE(refusal(quantized).find("bitsandbytes"), std::string::npos);
}

Json ministral() {
  Json config = test::small_config("ministral3", "Ministral3ForCausalLM");
  config["rope_parameters"] = {{"type", "yarn"},
                               {"rope_theta", 1e6},
                               {"factor", 16.0},
                               {"original_max_position_embeddings", 16384},
                               {"max_position_embeddings", 262144},
                               {"mscale", 1.0},
                               {"mscale_all_dim", 1.0},
                               {"llama_4_scaling_beta", 0.1}};
  return config;
}

TEST(Ministral3, ReadsYarnAndTheTemperatureOfItsQueries) {
  const ModelConfig config = import_hf_config(ministral().dump(), "c");
  EXPECT_EQ(config.temperature(), (QueryTemperature{0.1, 16384}));
  EXPECT_EQ(config.ropes().at(0).scaling.kind, RopeScalingKind::yarn);
  EXPECT_EQ(config.ropes().at(0).scaling.mscale_all_dim, 1.0);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.window(0), 0);
  // If the config lacks keys, the defaults of the transformers class apply.
  Json silent = ministral();
  silent.erase("rope_parameters");
  const ModelConfig same = import_hf_config(silent.dump(), "c");
  EXPECT_EQ(same.temperature(), config.temperature());
  EXPECT_EQ(same.ropes(), config.ropes());
  EXPECT_EQ(same.ropes().at(0).theta, 1e6);
  Json even = ministral();
  even["rope_parameters"].erase("llama_4_scaling_beta");
  EXPECT_EQ(import_hf_config(even.dump(), "c").temperature(), QueryTemperature{});
  Json windowed = ministral();
  windowed["sliding_window"] = 32;
  EXPECT_EQ(import_hf_config(windowed.dump(), "c").window(1), 32);
}

TEST(RopeParameters, ThatAreNotKnownAreRefusedByName) {
  Json config = ministral();
  config["rope_parameters"]["wobble"] = 3;
  EXPECT_NE(refusal(config).find("rope parameter wobble = 3 is not known"), std::string::npos);
  Json old = text_config();
  old["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}, {"wobble", 3}};
  EXPECT_NE(refusal(old).find("wobble"), std::string::npos);
  Json mrope = text_config();
  mrope["rope_parameters"] = {{"rope_type", "default"},
                              {"rope_theta", 1e6},
                              {"mrope_section", {11, 11, 10}},
                              {"mrope_interleaved", true}};
  EXPECT_EQ(refusal(mrope), "");
  EXPECT_EQ(import_hf_config(mrope.dump(), "c").ropes().at(0).theta, 1e6);
}

TEST(RopeParameters, OfKindsOfLayersCountWhereALayerIsOfThatKind) {
  Json config = text_config();
  config["sliding_window"] = 32;
  config["layer_types"] = {"sliding_attention", "sliding_attention"};
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 1e6}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  EXPECT_EQ(refusal(config), "");
  EXPECT_EQ(import_hf_config(config.dump(), "c").ropes().at(0).theta, 1e4);
  config["layer_types"] = {"sliding_attention", "full_attention"};
  const ModelConfig both = import_hf_config(config.dump(), "c");
  EXPECT_EQ(both.layer(0).attention()->rope->theta, 1e4);
  EXPECT_EQ(both.layer(1).attention()->rope->theta, 1e6);
}

}  // namespace
}  // namespace leq::wrappers
