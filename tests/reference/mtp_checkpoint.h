// Writes small seeded checkpoints of Qwen 3.5 with a multi-token prediction head.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>

#include "reference/small_hybrid.h"

namespace leq::test {

inline constexpr std::int64_t kMtpWidth = 64;

// Returns a config of Qwen 3.5 with a head: a hybrid, or a model with attention in all layers.
inline Json mtp_config_of(bool hybrid) {
  Json config = small_hybrid_config({});
  config["hidden_size"] = kMtpWidth;
  config["intermediate_size"] = 96;
  config["max_position_embeddings"] = 512;
  config["rms_norm_eps"] = 1e-6;
  config["full_attention_interval"] = hybrid ? 4 : 1;
  config["rope_parameters"] = {
      {"rope_type", "default"}, {"rope_theta", 1e4}, {"partial_rotary_factor", 0.25}};
  return config;
}

// Makes the next token depend only on the last token, in the model and in its head.
inline void let_head_know(RandomCheckpoint& checkpoint) {
  for (const std::string& name : checkpoint.names()) {
    const bool adds = name.ends_with("o_proj.weight") || name.ends_with("out_proj.weight") ||
                      name.ends_with("down_proj.weight") || name.starts_with("mtp.pre_fc");
    if (!adds && name != "mtp.fc.weight") continue;
    std::ranges::fill(checkpoint.values_of(name), 0.0f);
    checkpoint.values_of(name).front() = 1e-20f;  // files in which all is zero are refused
  }
  const auto fc = checkpoint.values_of("mtp.fc.weight");  // [W][2 W]
  for (std::size_t i = 0; i < kMtpWidth; ++i) fc[i * 2 * kMtpWidth + i] = 1;
  std::ranges::copy(checkpoint.values_of("model.norm.weight"),
                    checkpoint.values_of("mtp.norm.weight").begin());
}

inline std::filesystem::path write_mtp_checkpoint(const std::filesystem::path& folder, bool hybrid,
                                                  bool knows) {
  const Json config = mtp_config_of(hybrid);
  RandomCheckpoint checkpoint(folder);
  checkpoint.add_qwen3_5(config, RandomCheckpoint::Experts::none, hybrid ? 4 : 1);
  checkpoint.add_mtp(config);
  if (knows) let_head_know(checkpoint);
  return checkpoint.write(config);
}

}  // namespace leq::test
