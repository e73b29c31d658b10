// An engine on a thread of its own: requests are submitted from any thread, and their replies,
// counts and durations are read from any thread.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/stopwatch.h"
#include "engine/engine.h"

namespace leq {

// A histogram of durations with upper bounds, accumulated since the start, as Prometheus
// expects.
struct TimeHistogram {
  static constexpr std::array kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,   0.25, 0.5,
                                         1.0,   2.5,    5.0,   10.0, 25.0,  50.0, 100.0, 250.0};
  // The last count is for values above all bounds.
  std::array<std::int64_t, kBounds.size() + 1> counts = {};
  double sum = 0;

  // Counts a duration of `seconds` `times` times; upper bounds are inclusive.
  void add(double seconds, std::int64_t times = 1) {
    const auto place = std::ranges::lower_bound(kBounds, seconds) - kBounds.begin();
    counts[static_cast<std::size_t>(place)] += times;
    sum += seconds * static_cast<double>(times);
  }
};

// The thread that runs an engine, and its interface for other threads: requests are passed by
// value, results are returned through a mailbox.

// What one step added to one reply of a call.
struct ReplyUpdate {
  std::size_t reply = 0;  // index of the reply in its call
  std::string text;
  std::vector<TokenLogprobs> logprobs;  // one per token, if requested
  std::vector<Token> tokens;
  std::vector<std::uint64_t> digests;  // hashes of all logits, at the end, if requested
  std::optional<EngineReply> end;
};

// A queue from the engine's thread to the thread that waits for a call's replies.
class Mailbox {
 public:
  // May throw std::bad_alloc; `update` is then unchanged.
  void put(ReplyUpdate&& update);
  // Takes all updates since the last call; waits up to `seconds` if there are none.
  std::vector<ReplyUpdate> take(double seconds);

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<ReplyUpdate> updates_;
};

// A call of several requests; a reply is identified by its index in `requests`.
struct EngineCall {
  std::vector<EngineRequest> requests;   // EngineThread sets their callbacks
  std::optional<int> top_logprobs = {};  // per token; nullopt: not requested
  bool digests = false;                  // hash the logits, for receipts (engine/receipt.h)
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  // The slot that stores the replies' text at the end; nullopt: the slot of each reply's sequence.
  std::optional<std::size_t> slot = {};
};

// A running or queued request, for status displays.
struct RunningRequest {
  RequestId id = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t reply_tokens = 0;
  double seconds = 0;
};

struct EngineStatus {
  EngineCounts counts;
  std::size_t running = 0, waiting = 0;
  std::int64_t free_pages = 0, idle_pages = 0, pages = 0;
  std::int64_t requests = 0, refused = 0, failed = 0, cancelled = 0;  // since the start
  double prompt_seconds = 0, reply_seconds = 0;                       // sums over ended replies
  std::int64_t prompt_fed = 0, reply_decoded = 0;                     // tokens in these times
  TimeHistogram first_token;                                          // time since the request
  TimeHistogram next_token;   // tokens of one step share its time
  TimeHistogram whole_reply;  // time from the request to the end of the reply
  std::vector<RunningRequest> in_work;
};

// The queue is full; the caller may try again later.
class Busy : public Error {
 public:
  Busy(const std::string& text, bool shutting_down)
      : Error(text, ErrorKind::interrupted), shutting_down_(shutting_down) {}
  // If true, the server is stopping, so that trying again is of no use.
  bool shutting_down() const { return shutting_down_; }

 private:
  bool shutting_down_;
};

class EngineThread {
 public:
  // All references must outlive it. `max_requests`: the limit of running and queued replies.
  EngineThread(Session& session, const Tokenizer& tokenizer, const EngineOptions& options,
               std::size_t max_requests);
  // Ends running requests as interrupted.
  ~EngineThread();

  // Queues the requests; the mailbox then receives updates of each reply until its end. Throws
  // Error like Engine::submit, or Busy; in both cases none of the requests is queued.
  std::vector<RequestId> submit(EngineCall call);
  void cancel(const std::vector<RequestId>& ids);
  void cancel_all();
  // Runs `work` between two steps, waits until it returns and rethrows its exception.
  void between_steps(const std::function<void(Engine&)>& work);
  // Like between_steps, but runs once a sequence is idle, before a queued request takes it.
  void with_idle_sequence(const std::function<void(Engine&)>& work);
  // The last text (prompt and reply) of each slot; use it only between two steps.
  std::vector<std::vector<Token>>& slot_texts() { return slot_texts_; }

  // Counts a request that was refused before it came here.
  void count_refused() { ++refused_; }
  EngineStatus status() const;
  std::int64_t context() const { return context_; }
  // Why the thread ended unexpectedly; nullopt while it runs. After that, requests are refused.
  std::optional<std::string> failure() const;
  bool draining() const;  // no more requests are accepted

  // Stops accepting requests; those in progress may go on for `seconds`. Later calls change
  // nothing.
  void close(double seconds);
  // Whether the time of close() is over; texts that are still being embedded then end.
  bool is_over() const;
  // Waits until all requests have ended, or until is_over(); false if some have not ended.
  bool drain();

 private:
  struct Task;
  struct Writing;  // state of a request

  void run(Session& session, const Tokenizer& tokenizer, const EngineOptions& options);
  void loop(Engine& engine);
  void do_task(Task task);
  void end_all(const std::string& why);
  void do_tasks(Engine& engine);
  std::vector<RequestId> start(Engine& engine, EngineCall& call);
  EngineRequest connected(EngineRequest request, const EngineCall& call, std::size_t index,
                          const std::shared_ptr<Writing>& writing);
  void count_tokens(Writing& writing, std::int64_t tokens);
  void publish(const Engine& engine);
  void send();

  std::size_t max_requests_;
  std::int64_t context_;
  std::atomic<std::int64_t> refused_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> tasks_;
  bool stopping_ = false, draining_ = false;
  Stopwatch since_close_;
  double seconds_to_end_ = 0;
  std::optional<std::string> failure_;
  EngineStatus status_;  // after the last step
  // Used only by the engine's thread:
  Session* session_ = nullptr;
  EngineStatus totals_;
  std::map<RequestId, std::shared_ptr<Writing>> writing_;
  std::vector<std::vector<Token>> slot_texts_;
  struct Letter {
    std::shared_ptr<Mailbox> mailbox;
    ReplyUpdate update;
  };
  std::deque<Letter> outbox_;  // updates of the current step
  std::thread thread_;
};

}  // namespace leq
