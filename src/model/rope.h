// Frequencies of rotary position embeddings, with the scalings of Hugging Face's transformers and
// with f32 operations in the same order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace leq {

struct RopeFrequencies {
  std::vector<float> inv_freq;    // [d/2]
  float attention_factor = 1.0f;  // factor on cosines and sines
  std::string note;               // a note for the user ("dynamic: base 20961.9 for context 4096")
};

// `context` fixes the base of `dynamic` scaling, so that the chunks of a text use the same base.
RopeFrequencies rope_frequencies(const ModelConfig& config, const RopeConfig& rope,
                                 std::int64_t context);

// Factors on q: position p uses factors[p / temperature.period]. Each is the layer's query scale
// times its temperature, computed in double and rounded once. Empty if it has no temperature.
std::vector<float> query_factors(const ModelConfig& config, const AttentionConfig& attention,
                                 std::int64_t context);

}  // namespace leq
