// Ranks that are processes on one or several machines, started by mpirun.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "comm/communicator.h"

namespace leq {

// Number of processes that mpirun has started, including this one; nullopt without
// mpirun.
std::optional<int> mpi_processes();
// Index of this process among those on its machine; 0 if mpirun does not set it.
int mpi_local_rank();

struct MpiRankOptions {
  // Time limit for waiting for another rank, after which that rank counts as lost.
  std::chrono::milliseconds patience{300'000};
  // Time limit between heartbeats of a process, busy or not, after which the process counts as lost
  // because it is stopped or its machine is down.
  std::chrono::milliseconds silence{10'000};
};

// Creates this process's rank. To be called once. Throws Error if this build has no MPI, or if the
// processes cannot be connected. The rank must be destroyed before the process ends.
std::unique_ptr<Communicator> make_mpi_rank(const MpiRankOptions& options);

}  // namespace leq
