// Shares of a loop's tasks, in proportion to the measured speed of each thread. Threads of about
// the same speed keep equal shares, so that a thread gets the same tasks in every loop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace leq {

class ShareBalance {
 public:
  explicit ShareBalance(int threads);

  // `done`: the tasks of a loop that each thread completed, as a measure of its speed. Shares
  // change when the averages over many loops differ from them by a quarter of a share.
  void learn(std::span<const std::int64_t> done);

  // The first task of a thread's share of `tasks`; 0 <= thread <= threads. The share ends at the
  // first task of the next thread.
  std::int64_t first(int thread, std::int64_t tasks) const;

 private:
  std::vector<double> learned_;  // averaged fractions of all tasks
  std::vector<double> begins_;   // [threads + 1], 0 to 1
  int loops_ = 0;                // loops since the shares changed
};

}  // namespace leq
