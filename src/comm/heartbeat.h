// Detects lost processes. Each process sends twenty heartbeats per time-out to all others, from a
// thread of its own, so that a rank may compute for any time. A process that is stopped, or whose
// machine is down, sends none.
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
  // `mpi_mutex` is held during every MPI call. `calls` and `mpi_mutex` must outlive the object.
  Heartbeat(const MpiCalls& calls, std::mutex& mpi_mutex, int rank, int size,
            std::chrono::milliseconds silence);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // A rank that sent no heartbeat during the whole time-out; -1: none.
  int lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  void run();
  void look();

  const MpiCalls& calls_;
  std::mutex& mpi_mutex_;
  int rank_;
  std::chrono::milliseconds pause_;
  std::vector<int> quiet_;  // [ranks] pauses since the last heartbeat of each
  std::atomic<int> lost_{-1};
  std::mutex mutex_;  // guards ends_
  std::condition_variable ending_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace leq
