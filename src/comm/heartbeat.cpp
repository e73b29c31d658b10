#include "comm/heartbeat.h"

namespace leq {
namespace {

constexpr int kSigns = 20;

}  // namespace

Heartbeat::Heartbeat(const MpiCalls& calls, std::mutex& mpi_mutex, int rank, int size,
                     std::chrono::milliseconds silence)
    : calls_(calls),
      mpi_mutex_(mpi_mutex),
      rank_(rank),
      pause_(silence / kSigns),
      quiet_(static_cast<std::size_t>(size), 0),
      thread_([this] { run(); }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ending_.notify_all();
  thread_.join();
}

void Heartbeat::run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    lock.unlock();
    look();
    lock.lock();
    ending_.wait_for(lock, pause_, [this] { return ends_; });
  }
}

// Counts pauses instead of time, so that no process counts as lost if all processes were suspended
// and resumed together.
void Heartbeat::look() {
  const std::lock_guard lock(mpi_mutex_);
  calls_.beat();
  for (int& pauses : quiet_) ++pauses;
  for (int rank = calls_.beat_of(); rank >= 0; rank = calls_.beat_of()) {
    quiet_[static_cast<std::size_t>(rank)] = 0;
  }
  for (int rank = 0; rank < static_cast<int>(quiet_.size()); ++rank) {
    if (rank == rank_ || quiet_[static_cast<std::size_t>(rank)] <= kSigns) continue;
    lost_.store(rank, std::memory_order_release);
    return;
  }
}

}  // namespace leq
