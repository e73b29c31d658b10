// Placement of ranks: either threads of this process, each with a share of the cores or a GPU of
// its own, or processes started by mpirun.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "comm/thread_ranks.h"
#include "runtime/make_backend.h"

namespace leq {

// Whether mpirun started the ranks as processes. Throws Error if it started another number of
// processes, or if the device is an emulated GPU.
bool ranks_are_processes(int ranks, std::string_view device);

// The backend of one of `ranks` ranks; `device.threads` is the number of threads of this rank.
std::unique_ptr<Backend> rank_backend(const DeviceOptions& device, int rank, int ranks);
// The backends of all ranks except the leader, as threads; `device.threads` is their total.
std::vector<std::unique_ptr<Backend>> follower_backends(const DeviceOptions& device, int ranks,
                                                        bool record_steps);
ThreadRankOptions thread_rank_options(int threads, int ranks);

}  // namespace leq
