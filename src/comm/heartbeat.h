// Whether the other processes still live: each sends a sign to all others twenty times in the time
// after which it would be missed, from a thread of its own, so that a rank may be as busy as it
// likes. A process that is stopped, or whose machine is gone, sends none.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/mpi/mpi_calls.h"

namespace leq {

class Heartbeat {
 public:
  // `turn`: whose holder may call MPI. Both must outlive the signs.
  Heartbeat(const MpiCalls& calls, std::mutex& mpi_mutex, int rank, int size,
            std::chrono::milliseconds silence);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // A rank of which nothing has been heard for too long; -1: all live.
  int lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  void run();
  void look();

  const MpiCalls& calls_;
  std::mutex& mpi_mutex_;
  int rank_;
  std::chrono::milliseconds pause_;
  std::vector<int> quiet_;  // [ranks] pauses since the last sign
  std::atomic<int> lost_{-1};
  std::mutex mutex_;  // of ends_
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace leq
