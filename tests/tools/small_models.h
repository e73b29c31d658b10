// Small .leq files with random weights, created by leq-quantize as a user would.
#pragma once

#include <filesystem>
#include <string>

#include "base/error.h"
#include "reference/random_checkpoint.h"
#include "tools/tool_runner.h"

namespace leq::test {

inline constexpr std::int64_t kSmallContext = 192;

inline Json small_llama_config() {
  return small_config_with({{"intermediate_size", 160},
                            {"vocab_size", 101},
                            {"max_position_embeddings", kSmallContext},
                            {"tokenizer_class", "GPT2Tokenizer"}});
}

inline Json small_gpt2_config() {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_embd", 128},
          {"n_layer", 2},
          {"n_head", 4},
          {"n_positions", kSmallContext},
          {"vocab_size", 130},
          {"layer_norm_epsilon", 1e-5},
          {"activation_function", "gelu_new"},
          {"tokenizer_class", "GPT2Tokenizer"}};
}

// `family` is "llama" or "gpt2". Returns the path of the file in `folder`.
inline std::string make_small_model(const TemporaryFolder& folder, const std::string& family,
                                    const std::string& type) {
  const Json config = family == "gpt2" ? small_gpt2_config() : small_llama_config();
  RandomCheckpoint checkpoint(folder / (family + "-checkpoint"));
  if (family == "gpt2") {
    checkpoint.add_gpt2(config, "transformer.");
  } else {
    checkpoint.add_llama(config, {});
  }
  const std::string source = checkpoint.write(config).string();
  const std::string path = (folder / (family + "-" + type + ".leq")).string();
  const ToolRun made = run_program("leq-quantize", {source, "-o", path, "--type", type});
  require(made.status == 0, "leq-quantize: ", made.err);
  return path;
}

}  // namespace leq::test
