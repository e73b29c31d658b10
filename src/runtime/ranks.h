// Placement of ranks: threads of this process, each with a part of its cores or a GPU of its own,
// or processes started by mpirun.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "comm/thread_ranks.h"
#include "platform/make_backend.h"

namespace leq {

// Whether mpirun started the ranks as processes. Throws Error where it started another number, and
// where the device is an emulated GPU.
bool ranks_are_processes(int ranks, std::string_view device);

// The backend of one of `ranks` ranks; `device.threads` is its own number of threads.
std::unique_ptr<Backend> rank_backend(const DeviceOptions& device, int rank, int ranks);
// Backends of all ranks but the leader, as threads; `device.threads` counts those of all ranks.
std::vector<std::unique_ptr<Backend>> follower_backends(const DeviceOptions& device, int ranks,
                                                        bool record_steps);
ThreadRankOptions thread_rank_options(int threads, int ranks);

}  // namespace leq
