// From --tp to ranks: threads of this process, or the processes that mpirun started.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "comm/thread_ranks.h"
#include "tools/common/options.h"

namespace leq {

Option rank_option(const std::string& group);

// Throws Error where the device, or the threads' places, do not go with so many ranks.
void check_ranks(const Options& options, std::int64_t ranks);

// What --tp says; 1 where the tool has no such option. Throws Error as check_ranks does.
int rank_count(const Options& options);

// Whether mpirun started the ranks as processes. Throws Error where it started another number, and
// where they are to compute on emulated GPUs.
bool ranks_are_processes(const Options& options, int ranks);

// For the ranks beside the leader, each with its part of `threads` and, of a GPU's, its own device.
std::vector<std::unique_ptr<Backend>> follower_backends(const Options& options, int threads,
                                                        int ranks);
ThreadRankOptions thread_rank_options(int threads, int ranks);

}  // namespace leq
