// A loaded model as the server answers with it: its engine, its chat template, what clients see of
// it, and the texts that are kept for its next start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "generate/chat_template.h"
#include "model/session.h"
#include "runtime/engine_thread.h"
#include "server/generation_call.h"
#include "server/grammar_store.h"
#include "server/slot_files.h"

namespace leq {

// How a model is served.
struct HostOptions {
  EngineOptions engine;
  std::string name;  // of the model, for clients; empty: that of its file
  // For requests that say nothing of it:
  SamplingSettings sampling;
  std::optional<std::uint64_t> seed;
  std::int64_t max_tokens = -1;
  std::string chat_template;  // the name of a format; empty: the model's own template
  bool enable_thinking = true;
  std::int64_t thought_tokens = -1;  // most tokens of thoughts; -1: any number
  std::string thought_words = std::string(kThoughtWords);  // said where they end for that
  std::size_t most_waiting = 64;  // replies, beside those in work; more are refused
  // A folder for what slots save, and for the texts that are kept from one run to the next.
  std::optional<std::filesystem::path> slot_folder;
  // Lines for people: what of these texts was read and written, marked as errors are.
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

class HostedModel {
 public:
  // `model` and `session` must outlive it, and no other object may use the session. Throws Error on
  // settings that the model cannot follow.
  HostedModel(const Model& model, Session& session, const HostOptions& options);

  const ApiModel& api() const { return api_; }
  const Model& model() const { return model_; }
  const RunLimits& limits() const { return limits_; }
  EngineThread& engine() { return engine_; }
  const std::optional<SlotFiles>& slot_files() const { return slot_files_; }
  const std::string& template_text() const { return template_text_; }  // or its name
  // Why the model cannot be asked for chats; empty where it can.
  const std::string& chat_error() const { return chat_error_; }

  // Takes no more requests. Those in work are written to their ends, for at most so many seconds;
  // then they are interrupted. The texts that are kept go to the slots' folder, where there is one.
  void end(double seconds);

 private:
  ApiModel api_model(const HostOptions& options);
  void read_kept();
  void write_kept();

  const Model& model_;
  RunLimits limits_;
  std::function<void(const std::string&)> say_;
  std::optional<SlotFiles> slot_files_;
  bool keeps_texts_;  // until they are written
  std::string template_text_, chat_error_;
  std::optional<ChatTemplate> chat_;
  GrammarStore grammars_;
  ApiModel api_;
  EngineThread engine_;
};

// Replies of one model in work or waiting.
std::size_t most_requests(const RunLimits& limits, const HostOptions& options);

}  // namespace leq
