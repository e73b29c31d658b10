// genai_config.json, which describes an exported folder to onnxruntime-genai.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "model/open_model.h"

namespace leq {

Json genai_config(const Model& model, std::int64_t context);

}  // namespace leq
