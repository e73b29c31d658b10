// The options of leq-run as a table, and a struct with the values that tools/model_setup does not
// read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grammar/grammar.h"
#include "sampling/settings.h"
#include "tools/common/options.h"
#include "tools/run/prompt.h"

namespace leq::run {

// Largest number of tokens that can be asked for.
inline constexpr std::int64_t kMaxCount = std::int64_t{1} << 40;

enum class Mode : std::uint8_t {
  automatic,  // chat if the model has a template
  completion,
  chat,
};

struct RunArgs {
  std::filesystem::path model;
  std::string model_name;  // as it was given, or the path
  Mode mode = Mode::automatic;
  std::optional<std::string> prompt;  // -p or a positional argument, escapes processed
  bool joins_pipe = false;            // positional: piped text comes before it
  std::optional<std::filesystem::path> prompt_file;
  std::optional<std::string> system;
  bool single_turn = false;
  bool plain = false;     // one prompt and its reply, and nothing else but warnings
  bool chats_on = false;  // after the answer to the prompt
  bool multi_line = false;
  bool wrap = true;
  std::optional<std::string> chat_name;
  bool greets = true;  // false: the chat was reopened with another context

  std::int64_t max_tokens = -1;
  std::vector<std::string> stop_strings;
  bool ignore_eos = false;
  bool parse_special = true;
  bool display_prompt = true;
  std::optional<bool> color;  // none: in a chat, if the environment allows it
  bool verbose = false;
  std::string chat_template;  // a named format; empty: the model's own template
  bool thinking = true;

  bool many = false;   // the prompt file has one prompt per line
  bool jsonl = false;  // replies as JSON lines
  bool speculate = true;
  bool find_drafts = true;
  std::optional<std::filesystem::path> draft_model;
  std::int64_t max_draft_tokens = 0;  // per step

  std::optional<PromptCacheFile> prompt_cache;
  std::optional<std::filesystem::path> receipt;
  std::shared_ptr<const Grammar> grammar;  // constrains replies; null: no constraint
  bool json = false;                       // it is that of --format json

  GivenSampling sampling;
  std::vector<LogitBias> logit_bias;
  std::optional<std::vector<std::string>> dry_breakers;
  std::optional<std::uint64_t> seed;
  SettingOrigin seed_origin = SettingOrigin::flag;
  std::int64_t context = 0;  // -c
};

// Any JSON object.
std::shared_ptr<const Grammar> json_grammar();

ToolSpec run_tool_spec();

// Whether the options ask for completions: receipts, kept prompts and many prompts are of them.
bool is_completion(const Options& options);

// Throws Error if values contradict each other.
RunArgs read_args(const Options& options);

}  // namespace leq::run
