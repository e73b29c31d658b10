// The one thread that steps an engine, and the way to it from all others: requests go in as values,
// what they become comes back through a mailbox.
#pragma once

#include <atomic>
#include <condition_variable>
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
#include "engine/logprobs.h"
#include "runtime/time_histogram.h"

namespace leq {

// What one step added to one of a call's replies.
struct ReplyNews {
  std::size_t reply = 0;  // which of the call's
  std::string text;
  std::vector<TokenLogprobs> logprobs;  // of the tokens, where they were asked for
  std::vector<Token> tokens;
  std::vector<std::uint64_t> digests;  // of all its logits, where it ended and they were asked for
  std::optional<EngineReply> end;
};

// From the engine's thread to the one that waits for a call's replies.
class Mailbox {
 public:
  // Throws std::bad_alloc, and then `news` is as it was.
  void put(ReplyNews&& news);
  // All that came since the last call; waits up to `seconds` for something.
  std::vector<ReplyNews> take(double seconds);

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<ReplyNews> news_;
};

// What a call asks for: its replies are told apart by their place in `requests`.
struct EngineCall {
  std::vector<EngineRequest> requests;   // their sinks are set by EngineThread
  std::optional<int> top_logprobs = {};  // of each token; nullopt: none are wanted
  bool digests = false;                  // of the logits, for receipts (engine/receipt.h)
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  // The slot that has the replies' texts in the end; nullopt: of the sequence of each.
  std::optional<std::size_t> slot = {};
};

// A request in work or waiting, for people.
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
  double prompt_seconds = 0, reply_seconds = 0;                       // of replies that ended
  std::int64_t prompt_fed = 0, reply_decoded = 0;                     // in that time
  TimeHistogram first_token;                                          // from the request on
  TimeHistogram next_token;   // of each token but the first; those of one step share its time
  TimeHistogram whole_reply;  // from the request to the end
  std::vector<RunningRequest> in_work;
};

// Too many are waiting: the caller may come again later.
class Busy : public Error {
 public:
  Busy(const std::string& text, bool shutting_down)
      : Error(text, ErrorKind::interrupted), shutting_down_(shutting_down) {}
  // Later will not do: the server ends.
  bool shutting_down() const { return shutting_down_; }

 private:
  bool shutting_down_;
};

class EngineThread {
 public:
  // All must outlive it. `most_requests`: replies in work or waiting.
  EngineThread(Session& session, const Tokenizer& tokenizer, const EngineOptions& options,
               std::size_t most_requests);
  // Ends what is in work, as interrupted.
  ~EngineThread();

  // Once it returns, the mailbox gets news of each reply up to its end. Throws Error as
  // Engine::submit does, and Busy; none of the call's replies is written then.
  std::vector<RequestId> submit(EngineCall call);
  void cancel(const std::vector<RequestId>& ids);
  void cancel_all();
  // Calls `work` between two steps and returns when it has ended; what it throws comes out here.
  void between_steps(const std::function<void(Engine&)>& work);
  // The same once a sequence is idle, before a request that waits takes it.
  void with_idle_sequence(const std::function<void(Engine&)>& work);
  // The last text, prompt and reply, of each sequence; for work between two steps alone.
  std::vector<std::vector<Token>>& slot_texts() { return slot_texts_; }

  EngineStatus status() const;
  std::int64_t context() const { return context_; }
  // What ended the thread before it was told to, null while all is well. No request is taken then.
  std::optional<std::string> failure() const;
  bool draining() const;  // no request is taken any more

  // No request is taken from now on. Waits until all have ended, at most so long; false where some
  // had not.
  bool drain(double seconds);

 private:
  struct Task;
  struct Writing;  // a request, as its status has it

  void run(Session& session, const Tokenizer& tokenizer, const EngineOptions& options);
  void loop(Engine& engine);
  void do_task(Task task);
  void end_all(const std::string& why);
  void do_tasks(Engine& engine);
  std::vector<RequestId> start(Engine& engine, EngineCall& call);
  EngineRequest connected(EngineRequest request, const EngineCall& call, std::size_t index,
                          const std::shared_ptr<Writing>& writing);
  void count_tokens(Writing& writing, std::int64_t tokens);
  void keep_text(const Writing& writing, const EngineReply& reply);
  void publish(const Engine& engine);
  void send();

  std::size_t most_requests_;
  std::int64_t context_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> tasks_;
  bool stopping_ = false, draining_ = false;
  std::optional<std::string> failure_;
  EngineStatus status_;  // as of the last step
  // Of the engine's thread alone:
  Session* session_ = nullptr;
  EngineStatus totals_;
  std::map<RequestId, std::shared_ptr<Writing>> writing_;
  std::vector<std::vector<Token>> slot_texts_;
  struct Letter {
    std::shared_ptr<Mailbox> mailbox;
    ReplyNews news;
  };
  std::deque<Letter> outbox_;  // of the step in work
  std::thread thread_;
};

}  // namespace leq
