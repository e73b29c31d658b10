// Extracts the text model from a multimodal config.json: {"model_type": "mistral3", "text_config":
// {...}, "vision_config": {...}}. leq runs only the text model.
#pragma once

#include <string_view>

#include "base/json.h"

namespace leq {

// The config of the text model plus the wrapper's keys that apply to all of its models (tied head,
// quantization, end tokens); returns a config without "text_config" unchanged. Throws Error naming
// `source` if text_config is not an object or if the wrapper's architecture generates no text.
Json text_config_of(Json config, std::string_view source);

// For error messages: describes a model_type that leq recognizes but does not support ("Llama 4: a
// mixture of experts, ..."); empty if it is unknown.
std::string_view known_but_not_run(std::string_view model_type);

}  // namespace leq
