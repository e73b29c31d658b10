// Ranks as processes on one or several machines, started by mpirun.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "comm/communicator.h"

namespace leq {

// The number of processes that mpirun started, including this one; nullopt without
// mpirun.
std::optional<int> mpi_processes();
// Index of this process among those on its machine; 0 where mpirun does not set it.
int mpi_local_rank();

struct MpiRankOptions {
  // Time limit for waiting for another rank, after which it counts as lost.
  std::chrono::milliseconds timeout{300'000};
  // Time without a heartbeat of a process, busy or not, after which it counts as lost: it is
  // stopped, or its machine is down.
  std::chrono::milliseconds heartbeat_timeout{10'000};
};

// Creates this process's rank; to be called once. Throws Error where this build has no MPI, or
// where the processes cannot be connected. Must be destroyed before the process ends.
std::unique_ptr<Communicator> make_mpi_rank(const MpiRankOptions& options);

}  // namespace leq
