// Frequencies of rotary position embeddings with the scalings of Hugging Face's transformers, in
// its order of f32 operations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_config.h"

namespace leq {

struct RopeFrequencies {
  std::vector<float> inv_freq;    // [d/2]
  float attention_factor = 1.0f;  // multiplies cosines and sines
  std::string note;  // what a user should know ("dynamic: base 20961.9 for context 4096")
};

// `context` is the context in use: it fixes the base of `dynamic` scaling, so that chunks agree.
RopeFrequencies rope_frequencies(const ModelConfig& config, std::int64_t context);

// What q is multiplied by at position p: factors[p / period], 1/sqrt(d) times the temperature, in
// double and rounded once. No factors where no layer has a temperature.
struct QueryFactors {
  std::int64_t period = 0;
  std::vector<float> factors;  // [(context - 1) / period + 1]
};
QueryFactors query_factors(const ModelConfig& config, std::int64_t context);

}  // namespace leq
