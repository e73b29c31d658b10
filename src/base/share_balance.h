// Shares of a loop's tasks, in proportion to the measured speed of each thread. Threads of about
// the same speed keep equal shares, so that a thread gets the same tasks in loop after loop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace leq {

class ShareBalance {
 public:
  explicit ShareBalance(int threads);

  // `done`: the tasks of a loop that each thread did, as a measure of its speed. Shares
  // change once the averages over many loops differ from them by a quarter of a share.
  void update(std::span<const std::int64_t> done);

  // Where a thread's share of `tasks` begins; 0 <= thread <= threads, and it ends where the next
  // one does.
  std::int64_t first(int thread, std::int64_t tasks) const;

 private:
  std::vector<double> speeds_;  // parts of the whole
  std::vector<double> begins_;   // [threads + 1], 0 to 1
  int loops_ = 0;                // since the shares changed
};

}  // namespace leq
