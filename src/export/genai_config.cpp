#include "export/genai_config.h"

#include <algorithm>

namespace leq {
namespace {

Json decoder_config(const ModelConfig& config) {
  Json inputs = {{"input_ids", "input_ids"},
                 {"attention_mask", "attention_mask"},
                 {"past_key_names", "past_key_values.%d.key"},
                 {"past_value_names", "past_key_values.%d.value"}};
  if (config.learned_positions) inputs["position_ids"] = "position_ids";
  return {{"session_options",
           Json::object({{"log_id", "onnxruntime-genai"}, {"provider_options", Json::array()}})},
          {"filename", "model.onnx"},
          {"head_size", config.head_dim},
          {"hidden_size", config.width},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", config.kv_heads},
          {"num_hidden_layers", config.layer_count()},
          {"inputs", inputs},
          {"outputs", Json::object({{"logits", "logits"},
                                    {"present_key_names", "present.%d.key"},
                                    {"present_value_names", "present.%d.value"}})}};
}

Json search_config(const Model& model, std::int64_t context) {
  const Json said = generation_to_json(model.generation());
  const double temperature = said.value("temperature", 0.0);
  const bool samples = temperature > 0;
  return {{"do_sample", samples},
          {"max_length", context},
          {"min_length", 0},
          {"num_beams", 1},
          {"num_return_sequences", 1},
          {"past_present_share_buffer", true},
          {"repetition_penalty", 1.0},
          {"temperature", samples ? temperature : 1.0},
          {"top_k", samples ? said.value("top_k", std::int64_t{50}) : 1},
          {"top_p", samples ? said.value("top_p", 1.0) : 1.0}};
}

}  // namespace

Json genai_config(const Model& model, std::int64_t context) {
  const ModelConfig& config = model.config();
  const std::vector<Token> ends = model.end_tokens();
  // The type "llama" works for all decoders that have the inputs of decoder_config.
  Json json = {{"type", "llama"},
               {"context_length", context},
               {"vocab_size", config.vocab},
               {"decoder", decoder_config(config)}};
  json["eos_token_id"] = ends.size() == 1 ? Json(ends.front()) : Json(ends);
  json["pad_token_id"] = ends.empty() ? 0 : ends.front();
  if (model.has_tokenizer() && model.tokenizer().bos() >= 0) {
    json["bos_token_id"] = model.tokenizer().bos();
  }
  return {{"model", json}, {"search", search_config(model, context)}};
}

}  // namespace leq
