#include "convert/hf_text_config.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

// Keys of a wrapper that apply to the text model; its end tokens, for chats, take precedence.
constexpr std::array<std::string_view, 7> kCommonKeys = {
    "quantization_config", "eos_token_id", "bos_token_id",       "dtype",
    "torch_dtype",         "pad_token_id", "tie_word_embeddings"};

// The default text model type of a wrapper whose text_config names none.
struct DefaultText {
  std::string_view wrapper, text;
};
constexpr std::array<DefaultText, 5> kDefaultTexts = {{{"mistral3", "mistral"},
                                                       {"llava", "llama"},
                                                       {"qwen3_5", "qwen3_5_text"},
                                                       {"qwen3_5_moe", "qwen3_5_moe_text"},
                                                       {"muse_glimmer", "muse_glimmer_text"}}};

struct NotRun {
  std::string_view model_type, what;
};
constexpr std::array<NotRun, 23> kNotRun = {{
    {"mistral4", "Mistral Small 4: multi-head latent attention and a mixture of experts"},
    {"mistral_large4", "Mistral Large 4: multi-head latent attention and a mixture of experts"},
    {"llama4", "Llama 4: a mixture of experts, attention in chunks"},
    {"llama4_text", "Llama 4: a mixture of experts, attention in chunks"},
    {"mllama", "Llama 3.2 Vision: layers that attend to images"},
    {"qwen4_exp", "Qwen 3.8 Flash: hyper-connections, n-gram embeddings, indexed attention"},
    {"qwen4_exp_text", "Qwen 3.8 Flash: hyper-connections, n-gram embeddings, indexed attention"},
    {"qwen2_moe", "Qwen 1.5: a mixture of experts"},
    {"ministral", "Ministral 8B of 2024: windows by kinds of layers"},
    {"deepseek_v2", "DeepSeek V2: multi-head latent attention and a mixture of experts"},
    {"deepseek_v3", "DeepSeek V3: multi-head latent attention and a mixture of experts"},
    {"gemma2", "Gemma 2: norms after its sublayers, capped scores and logits"},
    {"gemma3", "Gemma 3: norms after its sublayers, two tables of positions"},
    {"gemma3_text", "Gemma 3: norms after its sublayers, two tables of positions"},
    {"gemma4", "Gemma 4: norms after its sublayers, inputs for each layer"},
    {"gemma4_text", "Gemma 4: norms after its sublayers, inputs for each layer"},
    {"gpt_oss", "gpt-oss: a mixture of experts, attention sinks"},
    {"phi3", "Phi 3 and 4: q, k, v and gate, up in joined tensors, LongRoPE"},
    {"glm4", "GLM 4: norms after its sublayers, RoPE in pairs of neighbours"},
    {"granite", "Granite: multipliers of embeddings, scores, residuals and logits"},
    {"olmo2", "OLMo 2: norms after its sublayers"},
    {"cohere2", "Command R7B: attention and MLP side by side"},
    {"smollm3", "SmolLM 3: layers without positions"},
}};

bool writes_text(std::string_view architecture) {
  return architecture.ends_with("ForConditionalGeneration") ||
         architecture.ends_with("ForCausalLM");
}

void check_architectures(const Json& wrapper, std::string_view source) {
  if (wrapper.find_given("architectures") == nullptr) return;
  const Json& names = wrapper["architectures"];
  require(names.is_array(), source, ": architectures: expected a list of names");
  for (const Json& name : names) {
    require(name.is_string() && writes_text(name.text()), source, ": architecture ",
            printable(name.dump()), " is not supported; expected one that writes text");
  }
}

}  // namespace

Json text_config_of(Json config, std::string_view source) {
  if (!config.is_object() || config.find_given("text_config") == nullptr) return config;
  Json text = config["text_config"];
  require(text.is_object(), source, ": text_config: expected an object, found ", text.type_name());
  check_architectures(config, source);
  for (const std::string_view key : kCommonKeys) {
    if (config.find_given(key) != nullptr) text[std::string(key)] = config[key];
  }
  if (text.find_given("model_type") == nullptr && config.find_given("model_type") != nullptr &&
      config["model_type"].is_string()) {
    const auto* found = std::ranges::find(
        kDefaultTexts, std::string_view(config["model_type"].text()), &DefaultText::wrapper);
    text["model_type"] =
        found == kDefaultTexts.end() ? config["model_type"].text() : std::string(found->text);
  }
  // Removed, because `architectures` of a text_config does not describe the checkpoint.
  text["architectures"] = nullptr;
  return text;
}

std::string_view known_but_not_run(std::string_view model_type) {
  const auto* found = std::ranges::find(kNotRun, model_type, &NotRun::model_type);
  return found == kNotRun.end() ? std::string_view() : found->what;
}

}  // namespace leq
