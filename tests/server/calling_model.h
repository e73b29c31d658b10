// Writes the storyteller with an additional token that begins a call, and a chat template for it.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "server/served_model.h"
#include "temporary_folder.h"

namespace leq::test {

struct CallingTemplate {
  std::string name;                  // name of the model's folder
  std::string mark = "<tool_call>";  // a token of its own, replacing the last merged one
  bool special = false;              // ... that does not appear in text
  std::string chat_template;
};

// Renders each message's role and content, and the available tools, in Hermes' style.
inline const std::string kHermesTemplate =
    "{# <tool_call> #}{% if tools %}{{ '[INST] ' + tools | tojson + ' [/INST]' }}{% endif %}"
    "{% for m in messages %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}{% endfor %}";
// The same template for a model with reasoning, which the prompt opens unless it is disabled.
inline const std::string kThinkingTemplate =
    kHermesTemplate +
    "{# </think> #}{% if add_generation_prompt %}{{ '<think>' if enable_thinking else "
    "'<think></think>' }}{% endif %}";

class CallingModel {
 public:
  explicit CallingModel(const CallingTemplate& wanted, ServerOptions options = story_options())
      : path_(folder_.path() / wanted.name) {
    namespace fs = std::filesystem;
    fs::create_directory(path_);
    const fs::path from = fs::path(LEQ_SOURCE_DIR) / "examples/storyteller";
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
      fs::copy_file(from / name, path_ / name);
    }
    write_tokenizer(from, wanted);
    Json config = parse_json(read_file(from / "tokenizer_config.json", kMaxBytes), "config");
    config["chat_template"] = wanted.chat_template;
    config.erase("added_tokens_decoder");
    write("tokenizer_config.json", config);
    model_.emplace(quantized(path_, "int8"), LoadOptions{});
    served_.emplace(2, options, *model_);
  }

  const ServedModel& served() const { return *served_; }
  ServedModel& served() { return *served_; }
  std::int64_t token() const { return token_; }

 private:
  static constexpr std::uint64_t kMaxBytes = 16 << 20;

  void write_tokenizer(const std::filesystem::path& from, const CallingTemplate& wanted) {
    Json tokenizer = parse_json(read_file(from / "tokenizer.json", kMaxBytes), "tokenizer.json");
    Json& model = tokenizer["model"];
    const Json merges = model["merges"];
    const Json& last = merges[merges.size() - 1];
    const std::string piece = last[0].text() + last[1].text();
    token_ = model["vocab"][piece].get<std::int64_t>();
    model["vocab"].erase(piece);
    model["vocab"][wanted.mark] = token_;
    model["merges"] = Json::array();
    for (const Json& merge : merges) {
      if (&merge != &last) model["merges"].push_back(merge);
    }
    tokenizer["added_tokens"].push_back({{"id", token_},
                                         {"content", wanted.mark},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", wanted.special}});
    write("tokenizer.json", tokenizer);
  }
  void write(const char* name, const Json& json) { std::ofstream(path_ / name) << json.dump(); }

  TemporaryFolder folder_;
  std::filesystem::path path_;
  std::int64_t token_ = 0;
  std::optional<Model> model_;
  std::optional<ServedModel> served_;
};

}  // namespace leq::test
