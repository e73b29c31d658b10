// The flags of leq-run as a table, and their values as one struct.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backend/kv_types.h"
#include "format/leq_reader.h"
#include "generate/settings.h"
#include "options.h"

namespace leq::run {

enum class Mode : std::uint8_t {
  automatic,  // a chat where there is no prompt and the model has a template
  completion,
  chat,
};

struct RunArgs {
  std::filesystem::path model;
  Mode mode = Mode::automatic;
  std::optional<std::string> prompt;  // -p, escapes processed
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
  std::string chat_template;  // its name; empty: recognised from the model's
  bool thinking = true;

  GivenSampling sampling;
  std::optional<std::uint64_t> seed;

  std::string device = "cpu";
  int threads = 0;  // 0: one for each core
  std::int64_t context = 0;
  std::int64_t batch_tokens = 512;
  std::optional<KvType> key_type, value_type;
  LoadMode load_mode = LoadMode::automatic;
  bool lock = false;
};

ToolSpec run_tool_spec();

// Throws Error where values contradict each other.
RunArgs read_args(const Options& options);

}  // namespace leq::run
