// Models that see and hear as checkpoints wrap them: {"model_type": "mistral3", "text_config":
// {...}, "vision_config": {...}}. leq runs the text model inside.
#pragma once

#include <string_view>

#include "base/json.h"

namespace leq {

// The config of the text model, with what a wrapper says for all its models beside it (the tied
// head, quantization, end tokens); a config without "text_config" as it is. Throws Error naming
// `source` where text_config is no object, or an architecture of the wrapper writes no text.
Json text_config_of(Json config, std::string_view source);

// What a model_type that leq knows of and does not run is, for errors ("Llama 4: a mixture of
// experts, ..."); empty where it is not known.
std::string_view known_but_not_run(std::string_view model_type);

}  // namespace leq
