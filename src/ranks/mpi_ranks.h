// Ranks that are processes on one or several machines, started by mpirun.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "ranks/communicator.h"
#include "ranks/mpi_calls.h"

namespace leq {

// Number of processes that mpirun has started, including this one; nullopt without
// mpirun.
std::optional<int> mpi_processes();
// Index of this process among those on its machine; 0 if mpirun does not set it.
int mpi_local_rank();

struct MpiRankOptions {
  // Time limit for waiting for another rank, after which that rank counts as lost.
  std::chrono::milliseconds timeout{300'000};
  // Time limit between heartbeats of a process, busy or not, after which the process counts as lost
  // because it is stopped or its machine is down.
  std::chrono::milliseconds heartbeat_timeout{10'000};
};

// Creates this process's rank. To be called once. Throws Error if this build has no MPI, or if the
// processes cannot be connected. The rank must be destroyed before the process ends.
std::unique_ptr<Communicator> make_mpi_rank(const MpiRankOptions& options);

// Detects lost processes. Each process sends twenty heartbeats per time-out to all others, from a
// thread of its own, so that a rank may compute for any time. A process that is stopped, or whose
// machine is down, sends none.
class Heartbeat {
 public:
  // `mpi_mutex` is held during every MPI call. `calls` and `mpi_mutex` must outlive the object.
  Heartbeat(const MpiCalls& calls, std::mutex& mpi_mutex, int rank, int size,
            std::chrono::milliseconds heartbeat_timeout);
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

// Reports on standard error in which operation a rank was when SIGTERM ended it, because mpirun
// ends all processes at once after one has died.

// Installs the SIGTERM handler, unless the process has a handler already.
void report_place_on_signal(int rank, int size);

// While it exists, records in which operation, at which site and in which step this rank waits. The
// texts must outlive the object.
class ReportedPlace {
 public:
  ReportedPlace(std::string_view operation, std::string_view site, std::int64_t step);
  ~ReportedPlace();
  ReportedPlace(const ReportedPlace&) = delete;
  ReportedPlace& operator=(const ReportedPlace&) = delete;
};

}  // namespace leq
