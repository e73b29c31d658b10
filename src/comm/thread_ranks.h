// Ranks as threads of one process, which read each other's rows directly.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace leq {

struct ThreadRankOptions {
  // Time limit for waiting for another rank, after which it counts as lost.
  std::chrono::milliseconds timeout{300'000};
  // Compute threads of all ranks together. With more threads than cores, a waiting rank sleeps at
  // once instead of spinning, and leaves its core to the others.
  int threads = 0;
};

class ThreadRanks {
 public:
  // Throws Error where there are fewer than 1 or more than kMostRanks ranks.
  ThreadRanks(int size, const ThreadRankOptions& options);
  ~ThreadRanks();

  static constexpr int kMostRanks = 256;

  int size() const;
  // For use by this rank's thread only.
  Communicator& operator[](int rank);

 private:
  struct State;
  class Rank;
  std::unique_ptr<State> state_;
  std::vector<Rank> ranks_;
};

}  // namespace leq
