// Where ranks compute: threads of this process with their parts of its cores or their own GPUs, or
// processes that mpirun started.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "comm/thread_ranks.h"
#include "platform/make_backend.h"

namespace leq {

// Whether mpirun started the ranks as processes. Throws Error where it started another number, and
// where they are to compute on emulated GPUs.
bool ranks_are_processes(int ranks, std::string_view device);

// Of one of `ranks` ranks; the device's threads are its own.
std::unique_ptr<Backend> rank_backend(const DeviceOptions& device, int rank, int ranks);
// Of the ranks beside the leader, as threads; the device's threads are those of all ranks.
std::vector<std::unique_ptr<Backend>> follower_backends(const DeviceOptions& device, int ranks,
                                                        bool record_steps);
ThreadRankOptions thread_rank_options(int threads, int ranks);

}  // namespace leq
