// Ranks that are threads of one process: they read each other's rows where these lie.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace leq {

struct ThreadRankOptions {
  // How long a rank waits for another before it is taken for lost.
  std::chrono::milliseconds patience{300'000};
  // Threads that all ranks compute with, theirs included. More than there are cores: who waits
  // sleeps at once, and leaves its core to the one it waits for.
  int threads = 0;
};

class ThreadRanks {
 public:
  // Throws Error where there are fewer than 1 or more than kMostRanks ranks.
  ThreadRanks(int size, const ThreadRankOptions& options);
  ~ThreadRanks();

  static constexpr int kMostRanks = 256;

  int size() const;
  // For the thread that is this rank, and only for it.
  Communicator& operator[](int rank);

 private:
  struct State;
  class Rank;
  std::unique_ptr<State> state_;
  std::vector<Rank> ranks_;
};

}  // namespace leq
