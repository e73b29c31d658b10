// Extracts the text model of a multimodal config.json: {"model_type": "mistral3", "text_config":
// {...}, "vision_config": {...}}. leq runs the text model only.
#pragma once

#include <string_view>

#include "base/json.h"

namespace leq {

// The config of the text model, with the wrapper's keys that apply to all its models (the tied
// head, quantization, end tokens); a config without "text_config" unchanged. Throws Error naming
// `source` where text_config is not an object, or an architecture of the wrapper generates no text.
Json text_config_of(Json config, std::string_view source);

// A description for errors of a model_type that leq recognises and does not run ("Llama 4: a
// mixture of experts, ..."); empty where it is unknown.
std::string_view known_but_not_run(std::string_view model_type);

}  // namespace leq
