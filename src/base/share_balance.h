// How many tasks of a loop each thread begins with: as many as its speed is of all threads'. Cores
// of one speed keep equal shares, so that a thread meets the same tasks in loop after loop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace leq {

class ShareBalance {
 public:
  explicit ShareBalance(int threads);

  // Tasks that each thread did of a loop, with work stealing: its speed.
  // Shares follow when what was learned of many loops differs from them by a quarter of a share.
  void learn(std::span<const std::int64_t> done);

  // Where a thread's share of `tasks` begins; 0 <= thread <= threads, and it ends where the next
  // one does.
  std::int64_t first(int thread, std::int64_t tasks) const;

 private:
  std::vector<double> learned_;  // parts of the whole
  std::vector<double> begins_;   // [threads + 1], 0 to 1
  int loops_ = 0;                // since the shares changed
};

}  // namespace leq
