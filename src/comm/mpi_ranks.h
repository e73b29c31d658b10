// Ranks that are processes, on one machine or several, started by mpirun.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "comm/communicator.h"

namespace leq {

// How many processes mpirun started, this one among them; nullopt where it was not mpirun that
// started it.
std::optional<int> mpi_processes();
// Which of those on this machine this process is; 0 where mpirun does not say.
int mpi_local_rank();

struct MpiRankOptions {
  // How long a rank waits for another before it is taken for lost.
  std::chrono::milliseconds patience{300'000};
  // How long nothing need be heard of a process, busy or not, until it is: it is stopped, or its
  // machine is gone.
  std::chrono::milliseconds silence{10'000};
};

// This process's rank. To be called once. Throws Error where this build has no MPI, or where the
// processes cannot be connected. Gone before the process ends.
std::unique_ptr<Communicator> make_mpi_rank(const MpiRankOptions& options);

}  // namespace leq
