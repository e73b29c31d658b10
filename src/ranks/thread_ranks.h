// Ranks that are threads of one process and read each other's rows directly.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "ranks/communicator.h"

namespace leq {

struct ThreadRankOptions {
  // Time limit for waiting for another rank, after which that rank counts as lost.
  std::chrono::milliseconds timeout{300'000};
  // Number of compute threads of all ranks together. If there are more threads than cores, a
  // waiting rank sleeps at once instead of spinning, so that others can use its core.
  int threads = 0;
};

class ThreadRanks {
 public:
  // Throws Error if `size` is below 1 or above kMostRanks.
  ThreadRanks(int size, const ThreadRankOptions& options);
  ~ThreadRanks();

  static constexpr int kMostRanks = 256;

  int size() const;
  // To be used only by the thread of that rank.
  Communicator& operator[](int rank);

 private:
  struct State;
  class Rank;
  std::unique_ptr<State> state_;
  std::vector<Rank> ranks_;
};

}  // namespace leq
