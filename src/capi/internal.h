// The common frame of all C functions: option structs with checked sizes, handles with checked
// kinds, and translation of exceptions to a status and a message.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "capi/leq.h"
#include "chat/chat_template.h"
#include "engine/engine.h"
#include "grammar/grammar.h"
#include "model/open_model.h"
#include "runtime/engine_thread.h"
#include "runtime/runtime.h"
#include "server/request.h"

namespace leq::capi {

// An error with a status that no ErrorKind maps to.
class StatusError : public Error {
 public:
  StatusError(leq_status status, const std::string& text)
      : Error(text, ErrorKind::internal), status_(status) {}
  leq_status status() const { return status_; }

 private:
  leq_status status_;
};

[[noreturn]] void misuse(const std::string& text);
inline void require_use(bool good, const char* text) {
  if (!good) [[unlikely]]
    misuse(text);
}

// Converts the current exception.
leq_status report(leq_error* error);

// Calls `work`; an exception is converted to a status and fills `error`, which may be null.
template <class Work>
leq_status guarded(leq_error* error, Work work) noexcept {
  try {
    work();
    return LEQ_OK;
  } catch (...) {
    return report(error);
  }
}

// Clears the results that are not null.
template <class... Results>
void clear(Results*... results) {
  ((results != nullptr ? void(*results = {}) : void()), ...);
}

inline constexpr std::uint32_t kMaxStructBytes = 4096;
void check_struct_size(std::uint32_t size, const char* name);
// The bytes beyond the known options must be 0: other values request a feature of a newer version.
void check_rest(const void* given, std::size_t known, std::size_t size, const char* name);

// Copies the caller's options into this version's struct; members beyond their size become 0.
template <class Options>
Options options_of(const Options* given, const char* name) {
  static_assert(std::is_trivially_copyable_v<Options>);
  Options options = {};
  if (given == nullptr) return options;
  check_struct_size(given->size, name);
  check_rest(given, sizeof(Options), given->size, name);
  std::memcpy(&options, given, std::min<std::size_t>(sizeof(Options), given->size));
  return options;
}

// Copies `result` into the caller's struct, up to its size.
template <class Result>
void give(Result result, Result* out, const char* name) {
  check_struct_size(out->size, name);
  result.size = out->size;
  std::memcpy(out, &result, std::min<std::size_t>(sizeof(Result), out->size));
}

// Memory that the caller frees with leq_free. These throw std::bad_alloc.
char* new_text(std::string_view text);  // zero-terminated
leq_token* new_tokens(std::span<const leq_token> tokens);

// Check text and list arguments: a null pointer with a size is an error.
std::string_view text_argument(const char* text, std::size_t bytes, const char* name);
std::span<const leq_token> tokens_argument(const leq_token* tokens, std::size_t count);
inline std::string or_empty(const char* text) { return text == nullptr ? "" : text; }

// The first member of every handle. Identifies its kind, and detects most uses after close.
enum class HandleKind : std::uint32_t {
  closed = 0x6c657100,
  model,
  session,
  grammar,
  replies,
  logits,
  cancel
};
struct Handle {
  explicit Handle(HandleKind handle_kind) : kind(handle_kind) {}
  ~Handle() { const_cast<volatile HandleKind&>(kind) = HandleKind::closed; }
  Handle(const Handle&) = delete;
  HandleKind kind;
};

// The base of the handles of one kind.
template <HandleKind own>
struct HandleOf : Handle {
  static constexpr HandleKind kOwn = own;
  HandleOf() : Handle(own) {}
};

void check_handle(const Handle* handle, HandleKind kind, const char* name);

// The handle, after a check of its kind.
template <class Checked>
Checked& checked(Checked* handle, const char* name) {
  check_handle(handle, Checked::kOwn, name);
  return *handle;
}
template <class Checked>
bool is_valid(const Checked* handle) {
  return handle != nullptr && handle->kind == Checked::kOwn;
}
// Ignores null and handles of another kind.
template <class Checked>
void close_handle(Checked* handle) {
  if (is_valid(handle)) delete handle;
}

// A model file, with the chat template and the grammar cache for its requests.
class OpenModel {
 public:
  OpenModel(const std::string& path, const LoadOptions& options);

  const Model& file() const { return model_; }
  // The model's properties for requests; `slots`: sequences. Throws Error without a tokenizer.
  ApiModel api(std::int64_t slots) const;

 private:
  Model model_;
  std::optional<ApiModel> api_;  // nullopt: no tokenizer
};

struct SessionRequest {
  DeviceOptions device = {};
  RunLimits limits = {};
  bool speculate = true;
  bool find_drafts = true;     // by n-grams of the text
  bool drafts_by_mtp = false;  // with the model's MTP head
  Pooling pooling = Pooling::mean;
};
// Converts the options of a session. Throws Error naming an option that is out of range.
SessionRequest session_request(const leq_session_options& options, const Model& model);
// Sets the KV types by name; null: the types that the file was made for.
void choose_kv_names(const char* key_type, const char* value_type, const Model& model,
                     RunLimits& limits);

}  // namespace leq::capi

// Definitions of the opaque handles of leq.h.

struct leq_cancel : leq::capi::HandleOf<leq::capi::HandleKind::cancel> {
  std::atomic<bool> requested = false;
};

struct leq_model : leq::capi::HandleOf<leq::capi::HandleKind::model> {
  explicit leq_model(std::shared_ptr<const leq::capi::OpenModel> opened)
      : model(std::move(opened)) {}
  std::shared_ptr<const leq::capi::OpenModel> model;  // shared by sessions
};

// A model with the memory and threads to run it, either through an engine that several threads may
// use, or token by token. The two modes use the same KV cache alternately.
struct leq_session : leq::capi::HandleOf<leq::capi::HandleKind::session> {
 public:
  leq_session(std::shared_ptr<const leq::capi::OpenModel> model,
              const leq::capi::SessionRequest& request);

  const leq::Model& model() const { return model_->file(); }
  // The model's properties for requests.
  leq::ApiModel api() { return model_->api(session().limits().sequences); }
  leq::Session& session() { return *runtime_.session; }
  std::int64_t context() const { return runtime_.session->limits().context; }
  leq::Pooling pooling() const { return pooling_; }

  // Calls `work` with the engine's thread; several threads may call this concurrently.
  void with_engine(const std::function<void(leq::EngineThread&)>& work);
  // Calls `work` alone with the tokens fed so far; throws StatusError if the engine is in use. Both
  // wait for another thread's work, and throw for a callback of `work`.
  void with_tokens(const std::function<void(std::vector<leq::Token>& fed)>& work);
  std::size_t position() const;  // number of tokens fed by the calls that have returned

 private:
  class Use;
  void await_feeder(std::unique_lock<std::mutex>& lock);
  void empty_caches();

  std::shared_ptr<const leq::capi::OpenModel> model_;
  leq::Runtime runtime_;
  leq::Pooling pooling_;
  leq::EngineOptions options_;
  mutable std::mutex mutex_;
  std::unique_ptr<leq::EngineThread> engine_;
  int users_ = 0;    // calls that are using the engine
  int feeding_ = 0;  // 0 or 1 call of with_tokens, by the thread feeder_
  std::thread::id feeder_;
  std::condition_variable changed_;
  std::vector<leq::Token> fed_;
  std::size_t position_ = 0;
};

struct leq_grammar : leq::capi::HandleOf<leq::capi::HandleKind::grammar> {
  explicit leq_grammar(std::shared_ptr<const leq::Grammar> compiled)
      : grammar(std::move(compiled)) {}
  std::shared_ptr<const leq::Grammar> grammar;
};

struct leq_logits : leq::capi::HandleOf<leq::capi::HandleKind::logits> {
  std::vector<float> numbers;  // [rows][columns]
  std::size_t rows = 0, columns = 0;
};

namespace leq::capi {

inline const OpenModel& model_of(const leq_model* handle) {
  return *checked(handle, "model").model;
}
inline leq_session& session_of(leq_session* handle) { return checked(handle, "session"); }

// Whether the caller has cancelled; false for null.
inline bool is_cancelled(const leq_cancel* cancel) {
  return cancel != nullptr && cancel->requested.load(std::memory_order_relaxed);
}
inline void check_cancel(const leq_cancel* cancel) {
  if (cancel != nullptr) checked(cancel, "cancel");
}

// Reads sampling settings and stop rules from the JSON object in a `settings` argument.
struct DrawSettings {
  SamplingSettings sampling;
  bool has_seed = false;
  StopRules stop;
  std::vector<Token> banned;
};

// Null: the model's defaults. Throws Error naming a member that is unknown, has another type or is
// out of range.
DrawSettings read_settings(const char* json, const ApiModel& model);

// Receipts of replies (engine/receipt.h). Throws Error if the model's replies are not reproducible.
void require_receipts(leq_session& session);
// A receipt as JSON in the format of leq-run. `digests`: hashes of the reply's logits.
std::string receipt_of(leq_session& session, const DrawSettings& settings,
                       std::span<const Token> prompt, const EngineReply& reply,
                       const std::vector<std::uint64_t>& digests);

}  // namespace leq::capi
