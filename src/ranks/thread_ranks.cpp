// Ranks that are threads of one process.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/cpu_features.h"
#include "base/thread_pool.h"
#include "ranks/communicator.h"

namespace leq {
namespace {

// Spins for about 0.5 ms, more than usually passes between two ranks in prefill. Waking a thread
// takes a large part of the time of a matrix product.
constexpr int kSpins = 20000;

}  // namespace

// Every rank counts its arrivals. A wait ends when the other rank's count is the same.
struct ThreadRanks::State {
  struct alignas(64) Place {
    std::atomic<std::uint64_t> arrivals{0};
    std::span<const SharedRows> blocks;                 // blocks of the current gather
    const std::vector<std::byte>* broadcast = nullptr;  // the leader's bytes
    std::atomic<bool> reads{false};                     // may be reading other ranks' memory
    bool inside = false;                                // after enter(); guarded by mutex
    std::function<void()> at_abort;                     // guarded by `mutex`
  };
  std::vector<Place> places;
  std::chrono::milliseconds timeout{};
  bool spins = false;

  std::atomic<bool> aborted{false};
  std::atomic<int> sleepers{0};
  std::mutex mutex;
  std::condition_variable arrived;
  std::optional<Error> error;  // guarded by `mutex`

  explicit State(int size) : places(static_cast<std::size_t>(size)) {}

  Place& at(int rank) { return places[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(places.size()); }

  void arrive(int rank) {
    at(rank).arrivals.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0) wake();
  }
  void wake() {
    { const std::lock_guard lock(mutex); }  // no thread is between its check and its wait now
    arrived.notify_all();
  }

  void require_not_aborted() {
    if (!aborted.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex);
    throw *error;
  }

  bool is_there(int rank, std::uint64_t count) {
    return at(rank).arrivals.load(std::memory_order_seq_cst) >= count;
  }

  // Waits until `rank` has arrived `count` times; returns false after the time limit.
  bool wait_for(int rank, std::uint64_t count, bool bounded) {
    for (int spin = 0; spins && spin < kSpins; ++spin) {
      if (is_there(rank, count)) return true;
      if (aborted.load(std::memory_order_relaxed)) break;
      pause_briefly();
    }
    const auto done = [&] {
      return is_there(rank, count) || aborted.load(std::memory_order_acquire);
    };
    if (!done()) {
      std::unique_lock lock(mutex);
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      bool there = true;
      if (bounded) {
        there = arrived.wait_for(lock, timeout, done);
      } else {
        arrived.wait(lock, done);
      }
      sleepers.fetch_sub(1, std::memory_order_seq_cst);
      if (!there) return false;
    }
    if (!is_there(rank, count)) require_not_aborted();
    return true;
  }

  Error abort(const Error& why) noexcept {
    std::unique_lock lock(mutex);
    if (!error) {
      error.emplace(why);
      for (const Place& place : places) {
        if (place.at_abort) place.at_abort();
      }
    }
    aborted.store(true, std::memory_order_seq_cst);
    arrived.notify_all();
    return *error;
  }
};

class ThreadRanks::Rank final : public Communicator {
 public:
  Rank(State& state, int rank) : state_(state), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return state_.size(); }

  void gather(std::span<const SharedRows> blocks, Receivers to, std::string_view site) override {
    if (size() == 1) return;
    exchange([&] {
      state_.at(rank_).blocks = blocks;
      wait_for_all(site);
      if (to == Receivers::all || leads()) {
        for (int other = 0; other < size(); ++other) {
          if (other != rank_) receive(blocks, other, site);
        }
      }
      wait_for_all(site);  // now others have read this rank's part
    });
  }

  void broadcast(std::vector<std::byte>& bytes, std::string_view site) override {
    if (size() == 1) return;
    exchange([&] {
      if (leads()) {
        state_.at(0).broadcast = &bytes;
        arrive();
        arrive();
        for (int other = 1; other < size(); ++other) wait_for(other, site);
        return;
      }
      arrive();
      state_.wait_for(0, own(), false);
      bytes = *state_.at(0).broadcast;
      arrive();
    });
  }

  void barrier(std::string_view site) override { wait_for_all(site); }
  Error abort(const Error& error) noexcept override { return state_.abort(error); }
  std::chrono::milliseconds timeout() const override { return state_.timeout; }

  void at_abort(const std::function<void()>& end) override {
    const std::lock_guard lock(state_.mutex);
    if (end && state_.error) end();
    state_.at(rank_).at_abort = end;
  }
  void enter() override {
    const std::lock_guard lock(state_.mutex);
    state_.at(rank_).inside = true;
  }
  void leave() noexcept override {
    std::unique_lock lock(state_.mutex);
    state_.at(rank_).inside = false;
    state_.arrived.notify_all();
    state_.arrived.wait_for(lock, state_.timeout, [&] {
      return std::ranges::none_of(state_.places, [](const auto& place) { return place.inside; });
    });
  }

 private:
  template <class Work>
  void exchange(Work work) {
    std::atomic<bool>& reads = state_.at(rank_).reads;
    reads.store(true, std::memory_order_seq_cst);
    try {
      work();
    } catch (const Error& error) {
      throw end_all(error);
    } catch (const std::bad_alloc&) {
      throw end_all(Error("out of memory", ErrorKind::no_memory));
    }
    reads.store(false, std::memory_order_release);
  }

  // Ends the other ranks' waits and returns the first error. Then no rank reads, so that the
  // error's handler may free memory that others read.
  Error end_all(const Error& error) {
    const Error first = state_.abort(rank_error(*this, error));
    state_.at(rank_).reads.store(false, std::memory_order_release);
    for (int other = 0; other < size(); ++other) {
      while (state_.at(other).reads.load(std::memory_order_acquire)) std::this_thread::yield();
    }
    return first;
  }

  std::uint64_t own() const { return state_.at(rank_).arrivals.load(std::memory_order_relaxed); }
  void arrive() {
    state_.require_not_aborted();
    state_.arrive(rank_);
  }
  void wait_for(int other, std::string_view site) {
    if (state_.wait_for(other, own(), true)) return;
    const Error lost("rank " + std::to_string(other) + " of " + std::to_string(size()) +
                         " does not come to " + std::string(site) + ": rank " +
                         std::to_string(rank_) + " has waited for " +
                         std::to_string(state_.timeout.count()) + " ms",
                     ErrorKind::no_device);
    throw state_.abort(lost);
  }
  void wait_for_all(std::string_view site) {
    arrive();
    for (int other = 0; other < size(); ++other) {
      if (other != rank_) wait_for(other, site);
    }
  }

  // Copies rank `other`'s part of each row from that rank's memory.
  void receive(std::span<const SharedRows> blocks, int other, std::string_view site) {
    const std::span<const SharedRows> theirs = state_.at(other).blocks;
    ensure(theirs.size() == blocks.size(), site, ": rank ", other, " gives ", theirs.size(),
           " blocks, expected ", blocks.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const SharedRows &to = blocks[i], &from = theirs[i];
      const ByteRange part = to.parts[static_cast<std::size_t>(other)];
      ensure(from.rows == to.rows &&
                 from.parts[static_cast<std::size_t>(other)].count() == part.count(),
             site, ": rank ", other, " gives ", from.rows, " rows, expected ", to.rows);
      if (part.count() == 0) continue;
      for (std::int64_t row = 0; row < to.rows; ++row) {
        const auto index = static_cast<std::size_t>(row);
        std::memcpy(to.all + index * to.stride + part.first, from.own + index * from.own_stride,
                    part.count());
      }
    }
  }

  State& state_;
  int rank_;
};

ThreadRanks::ThreadRanks(int size, const ThreadRankOptions& options) {
  require(size >= 1 && size <= kMaxRanks, Setting{"ranks"}, " ", size, ": expected 1 to ",
          kMaxRanks);
  state_ = std::make_unique<State>(size);
  state_->timeout = options.timeout;
  state_->spins = options.threads <= usable_cores();
  for (int rank = 0; rank < size; ++rank) ranks_.emplace_back(*state_, rank);
}

ThreadRanks::~ThreadRanks() = default;

int ThreadRanks::size() const { return state_->size(); }

Communicator& ThreadRanks::operator[](int rank) {
  return ranks_.at(static_cast<std::size_t>(rank));
}

}  // namespace leq
