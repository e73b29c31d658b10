// Definitions of the opaque handles of leq.h.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capi/guard.h"
#include "capi/live_session.h"
#include "generate/grammar/grammar.h"
#include "model/open_model.h"

struct leq_cancel : leq::capi::Handle {
  leq_cancel() : Handle(leq::capi::HandleKind::cancel) {}
  std::atomic<bool> requested = false;
};

struct leq_model : leq::capi::Handle {
  explicit leq_model(std::shared_ptr<const leq::capi::OpenModel> opened)
      : Handle(leq::capi::HandleKind::model), model(std::move(opened)) {}
  std::shared_ptr<const leq::capi::OpenModel> model;  // shared by sessions
};

struct leq_session : leq::capi::Handle {
  leq_session(std::shared_ptr<const leq::capi::OpenModel> model,
              const leq::capi::SessionRequest& request)
      : Handle(leq::capi::HandleKind::session), live(std::move(model), request) {}
  leq::capi::LiveSession live;
};

struct leq_grammar : leq::capi::Handle {
  explicit leq_grammar(std::shared_ptr<const leq::Grammar> compiled)
      : Handle(leq::capi::HandleKind::grammar), grammar(std::move(compiled)) {}
  std::shared_ptr<const leq::Grammar> grammar;
};

struct leq_logits : leq::capi::Handle {
  leq_logits() : Handle(leq::capi::HandleKind::logits) {}
  std::vector<float> numbers;  // [rows][columns]
  std::size_t rows = 0, columns = 0;
};

namespace leq::capi {

inline const OpenModel& model_of(const leq_model* handle) {
  check_handle(handle, HandleKind::model, "model");
  return *handle->model;
}

inline LiveSession& session_of(leq_session* handle) {
  check_handle(handle, HandleKind::session, "session");
  return handle->live;
}

// Whether the caller has cancelled; false for null.
inline bool is_cancelled(const leq_cancel* cancel) {
  return cancel != nullptr && cancel->requested.load(std::memory_order_relaxed);
}
inline void check_cancel(const leq_cancel* cancel) {
  if (cancel != nullptr) check_handle(cancel, HandleKind::cancel, "cancel");
}

}  // namespace leq::capi
