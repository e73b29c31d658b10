#include "runtime/engine_thread.h"

#include <chrono>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "engine/receipt.h"

namespace leq {

void Mailbox::put(ReplyUpdate&& update) {
  {
    const std::lock_guard lock(mutex_);
    updates_.push_back(std::move(update));
  }
  arrived_.notify_one();
}

std::vector<ReplyUpdate> Mailbox::take(double seconds) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [&] { return !updates_.empty(); });
  return std::exchange(updates_, {});
}

struct EngineThread::Task {
  std::function<void(Engine&)> work;
  bool needs_sequence = false;
  bool done = false;
  std::exception_ptr error = {};
};

struct EngineThread::Writing {
  std::shared_ptr<Mailbox> mailbox;
  std::size_t index = 0;
  std::vector<Token> prompt = {};
  std::optional<std::size_t> slot = {};
  std::int64_t reply_tokens = 0;
  double last_tokens = 0;  // time of the last tokens, in seconds
  Stopwatch since = {};
  LogitDigests digests = {};
  ReplyUpdate update = {};  // of the current step
};

EngineThread::EngineThread(Session& session, const Tokenizer& tokenizer,
                           const EngineOptions& options, std::size_t max_requests)
    : max_requests_(max_requests),
      context_(session.transformer().limits().context),
      session_(&session),
      slot_texts_(static_cast<std::size_t>(session.limits().sequences)) {
  try {
    thread_ =
        std::thread([this, &session, &tokenizer, options] { run(session, tokenizer, options); });
  } catch (const std::system_error& error) {
    fail(ErrorKind::no_memory, "cannot start the engine's thread: ", error.what());
  }
}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void EngineThread::run(Session& session, const Tokenizer& tokenizer, const EngineOptions& options) {
  try {
    Engine engine(session, tokenizer, options);
    loop(engine);
    end_all("the server stops");
  } catch (const std::bad_alloc&) {
    end_all("out of memory");
  } catch (const std::exception& error) {
    end_all(error.what());
  }
}

void EngineThread::loop(Engine& engine) {
  publish(engine);
  while (true) {
    do_tasks(engine);
    const bool worked = engine.step();
    publish(engine);
    if (worked) {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      continue;
    }
    std::unique_lock lock(mutex_);
    changed_.notify_all();  // wakes drain()
    changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (stopping_) return;
  }
}

// Ends every running or queued reply with an error.
void EngineThread::end_all(const std::string& why) {
  send();
  for (const auto& [id, writing] : writing_) {
    EngineReply reply;
    reply.id = id;
    reply.stopped = StopReason::failed;
    reply.error = Error(why, ErrorKind::interrupted);
    writing->mailbox->put({.reply = writing->index, .end = std::move(reply)});
  }
  const std::lock_guard lock(mutex_);
  writing_.clear();
  status_.running = status_.waiting = 0;
  if (!stopping_) failure_ = why;
  stopping_ = true;
  for (const auto& task : tasks_) {
    task->error = std::make_exception_ptr(Error(why, ErrorKind::interrupted));
    task->done = true;
  }
  tasks_.clear();
  changed_.notify_all();
}

// Runs each queued task once. Tasks that need a sequence stay queued while none is idle, and only
// one of them may use the last idle one. Allocates no memory, so that no waiting task is lost.
void EngineThread::do_tasks(Engine& engine) {
  std::unique_lock lock(mutex_);
  auto next = std::size_t{0};
  for (std::size_t left = tasks_.size(); left > 0; --left) {
    const std::shared_ptr<Task> task = tasks_[next];
    lock.unlock();
    const bool is_due = !task->needs_sequence || engine.has_idle_sequence();
    try {
      if (is_due) task->work(engine);
    } catch (...) {
      task->error = std::current_exception();
    }
    lock.lock();
    status_.running = engine.running();  // drain() counts requests before their first step too
    status_.waiting = engine.waiting();
    if (!is_due) {
      ++next;
      continue;
    }
    task->done = true;
    tasks_.erase(tasks_.begin() + static_cast<std::ptrdiff_t>(next));
    changed_.notify_all();
  }
}

void EngineThread::between_steps(const std::function<void(Engine&)>& work) {
  do_task({.work = work});
}

void EngineThread::with_idle_sequence(const std::function<void(Engine&)>& work) {
  do_task({.work = work, .needs_sequence = true});
}

void EngineThread::do_task(Task wanted) {
  const auto task = std::make_shared<Task>(std::move(wanted));
  std::unique_lock lock(mutex_);
  require(!stopping_, ErrorKind::interrupted, "the server stops", failure_ ? ": " : "",
          failure_.value_or(""));
  tasks_.push_back(task);
  changed_.notify_all();
  changed_.wait(lock, [&] { return task->done; });
  lock.unlock();
  if (task->error) std::rethrow_exception(task->error);
}

std::vector<RequestId> EngineThread::submit(EngineCall call) {
  std::vector<RequestId> ids;
  between_steps([&](Engine& engine) { ids = start(engine, call); });
  return ids;
}

void EngineThread::cancel(const std::vector<RequestId>& ids) {
  try {
    between_steps([&](Engine& engine) {
      for (const RequestId id : ids) engine.cancel(id);
    });
  } catch (const Error&) {  // the thread has ended, and with it all replies
  }
}

void EngineThread::cancel_all() {
  try {
    between_steps([&](Engine& engine) {
      for (const auto& [id, writing] : writing_) engine.cancel(id);
    });
  } catch (const Error&) {  // as in cancel()
  }
}

std::vector<RequestId> EngineThread::start(Engine& engine, EngineCall& call) {
  const bool draining = [&] {
    const std::lock_guard lock(mutex_);
    return draining_;
  }();
  const std::size_t wanted = call.requests.size();
  if (draining || writing_.size() + wanted > max_requests_) {
    ++refused_;
    if (draining) throw Busy("the server is shutting down", true);
    throw Busy(std::to_string(writing_.size()) + " of at most " + std::to_string(max_requests_) +
                   " replies are being written or waited for, and " + std::to_string(wanted) +
                   " more do not fit; try again later",
               false);
  }
  std::vector<RequestId> ids;
  ids.reserve(wanted);
  try {
    for (std::size_t i = 0; i < wanted; ++i) {
      const auto writing = std::make_shared<Writing>();
      ids.push_back(engine.submit(connected(std::move(call.requests[i]), call, i, writing)));
      writing_[ids.back()] = writing;
    }
  } catch (...) {
    for (const RequestId id : ids) engine.cancel(id);
    throw;
  }
  totals_.requests += static_cast<std::int64_t>(wanted);
  return ids;
}

// Sets callbacks that collect the updates of a step for publish(); tokens are reported before text.
EngineRequest EngineThread::connected(EngineRequest request, const EngineCall& call,
                                      std::size_t index, const std::shared_ptr<Writing>& writing) {
  writing->mailbox = call.mailbox;
  writing->index = index;
  writing->prompt = request.prompt;
  writing->slot = call.slot;
  if (call.top_logprobs || call.digests) {
    request.on_logits = [writing, top = call.top_logprobs, digests = call.digests](
                            std::span<const Token> tokens, std::span<const float> logits) {
      if (top) writing->update.logprobs = token_logprobs(tokens, logits, *top);
      if (digests) writing->digests.add(tokens.size(), logits);
    };
  }
  request.on_tokens = [this, writing](std::span<const Token> tokens) {
    count_tokens(*writing, std::ssize(tokens));
    writing->update.tokens.assign(tokens.begin(), tokens.end());
  };
  request.on_text = [writing](std::string_view text) { writing->update.text += text; };
  request.on_end = [this, writing](const EngineReply& reply) {
    totals_.failed += reply.stopped == StopReason::failed ? 1 : 0;
    totals_.cancelled += reply.stopped == StopReason::interrupted ? 1 : 0;
    totals_.prompt_seconds += reply.prompt_seconds;
    totals_.prompt_fed += reply.fed_tokens;
    totals_.reply_seconds += reply.reply_seconds;
    totals_.reply_decoded += reply.decoded_tokens;
    totals_.whole_reply.add(writing->since.seconds());
    if (reply.sequence >= 0) {  // the text of a slot, which a client may save
      const auto own = static_cast<std::size_t>(reply.sequence);
      std::vector<Token>& text = slot_texts_.at(writing->slot.value_or(own));
      text = writing->prompt;
      text.insert(text.end(), reply.tokens.begin(), reply.tokens.end());
    }
    writing->update.digests = writing->digests.values();
    writing->update.end = reply;
    writing->update.reply = writing->index;
    outbox_.push_back({writing->mailbox, std::exchange(writing->update, {})});
    writing_.erase(reply.id);
  };
  return request;
}

// Tokens of one step arrive together: a reply's first token counts as first_token, the other tokens
// share the time since the previous step.
void EngineThread::count_tokens(Writing& writing, std::int64_t tokens) {
  const double now = writing.since.seconds();
  if (writing.reply_tokens == 0) {
    totals_.first_token.add(now);
    if (tokens > 1) totals_.next_token.add(0, tokens - 1);
  } else {
    totals_.next_token.add((now - writing.last_tokens) / static_cast<double>(tokens), tokens);
  }
  writing.last_tokens = now;
  writing.reply_tokens += tokens;
}

// Called after a step: updates the status, then delivers the updates.
void EngineThread::publish(const Engine& engine) {
  EngineStatus status = totals_;
  status.counts = engine.counts();
  status.running = engine.running();
  status.waiting = engine.waiting();
  status.free_pages = session_->cache().free_pages();
  status.pages = session_->cache().page_count();
  status.idle_pages = engine.prefixes().idle_pages();
  for (const auto& [id, writing] : writing_) {
    status.in_work.push_back(
        {id, std::ssize(writing->prompt), writing->reply_tokens, writing->since.seconds()});
    if (writing->update.text.empty() && writing->update.tokens.empty()) continue;
    writing->update.reply = writing->index;
    outbox_.push_back({writing->mailbox, std::exchange(writing->update, {})});
  }
  {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
  }
  send();
}

// An item is removed only after its delivery, so that an exception loses none.
void EngineThread::send() {
  for (; !outbox_.empty(); outbox_.pop_front()) {
    outbox_.front().mailbox->put(std::move(outbox_.front().update));
  }
}

EngineStatus EngineThread::status() const {
  const std::lock_guard lock(mutex_);
  EngineStatus status = status_;
  status.refused = refused_;
  return status;
}

std::optional<std::string> EngineThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool EngineThread::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_ || stopping_;
}

bool EngineThread::is_over() const {
  const std::lock_guard lock(mutex_);
  return draining_ && since_close_.seconds() >= seconds_to_end_;
}

void EngineThread::close(double seconds) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(draining_, true)) return;
  since_close_.restart();
  seconds_to_end_ = seconds;
}

bool EngineThread::drain() {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> left(seconds_to_end_ - since_close_.seconds());
  return changed_.wait_for(lock, left, [&] {
    return stopping_ || (tasks_.empty() && status_.running + status_.waiting == 0);
  });
}

}  // namespace leq
