// Integer fields of a ModelConfig with their names in a .leq file.
#pragma once

#include <array>
#include <cstdint>

#include "model/model_config.h"

namespace leq {

// An integer field: its name in the file, and the largest value that is accepted.
struct CountField {
  const char* name;
  std::int64_t ModelConfig::*member;
  std::int64_t largest;
};
inline constexpr std::array<CountField, 6> kCounts = {
    {{"width", &ModelConfig::width, 1 << 20},
     {"heads", &ModelConfig::heads, 4096},
     {"kv_heads", &ModelConfig::kv_heads, 4096},
     {"head_dim", &ModelConfig::head_dim, 1024},
     {"vocab", &ModelConfig::vocab, 1 << 24},
     {"context", &ModelConfig::context, 1 << 24}}};

struct ScalingField {
  const char* name;
  double RopeScaling::*member;
};
inline constexpr std::array<ScalingField, 8> kScalingFields = {
    {{"factor", &RopeScaling::factor},
     {"low_freq_factor", &RopeScaling::low_freq_factor},
     {"high_freq_factor", &RopeScaling::high_freq_factor},
     {"attention_factor", &RopeScaling::attention_factor},
     {"beta_fast", &RopeScaling::beta_fast},
     {"beta_slow", &RopeScaling::beta_slow},
     {"mscale", &RopeScaling::mscale},
     {"mscale_all_dim", &RopeScaling::mscale_all_dim}}};

}  // namespace leq
