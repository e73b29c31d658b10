// A loaded model that the server can use: its engine, chat template and properties, and the texts
// of its prefix cache that are stored for the next start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "chat/chat_template.h"
#include "engine/engine.h"
#include "model/session.h"
#include "runtime/engine_thread.h"
#include "server/generation_call.h"
#include "server/grammar_store.h"
#include "server/slot_files.h"

namespace leq {

// Settings for serving a model.
struct HostOptions {
  EngineOptions engine;
  std::string name;  // model name shown to clients; empty: the file's name
  // Defaults for requests:
  SamplingSettings sampling;
  std::optional<std::uint64_t> seed;
  std::int64_t max_tokens = -1;
  std::string chat_template;  // the name of a format; empty: the model's own template
  bool enable_thinking = true;
  std::int64_t reasoning_tokens = -1;  // limit of reasoning tokens; -1: no limit
  std::string reasoning_words = std::string(kReasoningWords);  // inserted at a cutoff
  std::size_t most_waiting = 64;  // limit of queued replies; more are rejected
  // Folder for saved slots and for the prefix cache's texts, which are stored between runs.
  std::optional<std::filesystem::path> slot_folder;
  // Receives log lines about stored texts that were read or written, including errors.
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

class HostedModel {
 public:
  // `model` and `session` must outlive it, and the session must not be used by other objects.
  // Throws Error on settings that the model does not support.
  HostedModel(const Model& model, Session& session, const HostOptions& options);

  const ApiModel& api() const { return api_; }
  const Model& model() const { return model_; }
  const RunLimits& limits() const { return limits_; }
  EngineThread& engine() { return engine_; }
  const std::optional<SlotFiles>& slot_files() const { return slot_files_; }
  const std::string& template_text() const { return template_text_; }  // or the format's name
  // Why the model cannot chat; empty if it can.
  const std::string& chat_error() const { return chat_error_; }

  // Stops accepting requests. Running replies may finish within `seconds`; then they are
  // interrupted. Writes the prefix cache's texts to the slot folder, if there is one.
  void end(double seconds);

 private:
  ApiModel api_model(const HostOptions& options);
  void read_kept();
  void write_kept();

  const Model& model_;
  RunLimits limits_;
  std::function<void(const std::string&)> say_;
  std::optional<SlotFiles> slot_files_;
  bool keeps_texts_;  // false once they are written
  std::string template_text_, chat_error_;
  std::optional<ChatTemplate> chat_;
  GrammarStore grammars_;
  ApiModel api_;
  EngineThread engine_;
};

// The maximum number of replies of one model, running or queued.
std::size_t most_requests(const RunLimits& limits, const HostOptions& options);

}  // namespace leq
