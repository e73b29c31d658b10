// A model with the memory and threads to run it, either through an engine that several threads may
// use, or token by token. The two modes use the same KV cache alternately.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capi/guard.h"
#include "generate/chat_template.h"
#include "model/open_model.h"
#include "runtime/engine_thread.h"
#include "runtime/runtime.h"
#include "server/generation_call.h"

namespace leq::capi {

// A model file, with the chat template and the grammar cache for its requests.
class OpenModel {
 public:
  OpenModel(const std::string& path, const LoadOptions& options);

  const Model& file() const { return model_; }
  // The model's properties for requests; `slots`: sequences. Throws Error without a tokenizer.
  ApiModel api(std::int64_t slots) const;

 private:
  Model model_;
  std::string chat_error_;
  std::optional<ChatTemplate> chat_;
  mutable GrammarStore grammars_;
};

struct SessionRequest {
  DeviceOptions device = {};
  RunLimits limits = {};
  bool speculate = true;
  bool find_drafts = true;     // by n-grams of the text
  bool drafts_by_mtp = false;  // with the model's MTP head
};
// Converts the options of a session. Throws Error naming an option that is out of range.
SessionRequest session_request(const leq_session_options& options, const Model& model);
// Sets the KV types by name; null: the types that the file was made for.
void choose_kv_names(const char* key_type, const char* value_type, const Model& model,
                     RunLimits& limits);

class LiveSession {
 public:
  LiveSession(std::shared_ptr<const OpenModel> model, const SessionRequest& request);

  const Model& model() const { return model_->file(); }
  const OpenModel& opened() const { return *model_; }
  Session& session() { return *runtime_.session; }
  std::int64_t context() const { return runtime_.session->limits().context; }

  // Calls `work` with the engine's thread; several threads may call this concurrently.
  void with_engine(const std::function<void(EngineThread&)>& work);
  // Calls `work` alone with the tokens fed so far; throws StatusError if the engine is in use.
  void with_tokens(const std::function<void(std::vector<Token>& fed)>& work);
  std::size_t fed_tokens() const;

 private:
  EngineThread& enter_engine();
  void empty_caches();
  void leave_engine();

  std::shared_ptr<const OpenModel> model_;
  Runtime runtime_;
  EngineOptions options_;
  mutable std::mutex mutex_;
  std::unique_ptr<EngineThread> engine_;
  int users_ = 0;  // threads that are using the engine
  std::vector<Token> fed_;
};

}  // namespace leq::capi
