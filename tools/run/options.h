// The flags of leq-run as a table, and as one struct the values that tools/model_setup does not
// read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generate/grammar/grammar.h"
#include "generate/settings.h"
#include "tools/common/options.h"
#include "tools/run/prompt_cache.h"

namespace leq::run {

enum class Mode : std::uint8_t {
  automatic,  // a chat where there is no prompt and the model has a template
  completion,
  chat,
};

struct RunArgs {
  std::filesystem::path model;
  Mode mode = Mode::automatic;
  std::optional<std::string> prompt;  // -p or the word without a flag, escapes processed
  bool is_question = false;           // the latter: a message, where the model has a chat template
  std::optional<std::filesystem::path> prompt_file;
  std::optional<std::string> system;
  bool single_turn = false;
  bool multi_line = false;

  std::int64_t max_tokens = -1;
  std::vector<std::string> stop_strings;
  bool ignore_eos = false;
  bool parse_special = true;
  bool display_prompt = true;
  bool color = false;
  bool verbose = false;
  std::string chat_template;  // its name; empty: the model's own
  bool thinking = true;

  bool many = false;   // the prompt file holds a prompt in each line
  bool jsonl = false;  // their replies as JSON, one a line
  bool speculate = true;
  bool find_drafts = true;
  std::optional<std::filesystem::path> draft_model;
  std::int64_t max_draft_tokens = 0;  // in one step

  std::optional<PromptCacheFile> prompt_cache;
  std::optional<std::filesystem::path> receipt;
  std::shared_ptr<const Grammar> grammar;  // what a reply may be; null: anything

  GivenSampling sampling;
  std::vector<LogitBias> logit_bias;
  std::optional<std::vector<std::string>> dry_breakers;
  std::optional<std::uint64_t> seed;
};

ToolSpec run_tool_spec();

// Throws Error where values contradict each other.
RunArgs read_args(const Options& options);

}  // namespace leq::run
