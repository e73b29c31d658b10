#include "base/share_balance.h"

#include <cmath>
#include <numeric>

namespace leq {
namespace {

constexpr double kNewest = 1.0 / 32;      // weight of the newest loop in the averages
constexpr int kFewestLoops = 64;          // loops between two changes of shares
constexpr std::int64_t kFewestTasks = 4;  // tasks per thread; loops with fewer are too noisy
constexpr double kTolerance = 0.25;

}  // namespace

ShareBalance::ShareBalance(int threads)
    : learned_(static_cast<std::size_t>(threads), 1.0 / threads),
      begins_(static_cast<std::size_t>(threads) + 1) {
  for (int i = 0; i <= threads; ++i) begins_[static_cast<std::size_t>(i)] = double(i) / threads;
}

void ShareBalance::learn(std::span<const std::int64_t> done) {
  const std::int64_t total = std::accumulate(done.begin(), done.end(), std::int64_t{0});
  const auto threads = std::ssize(learned_);
  if (total < kFewestTasks * threads) return;
  for (std::size_t i = 0; i < learned_.size(); ++i) {
    const double part = static_cast<double>(done[i]) / static_cast<double>(total);
    learned_[i] += kNewest * (part - learned_[i]);
  }
  if (++loops_ < kFewestLoops) return;
  bool differs = false;
  for (std::size_t i = 0; i < learned_.size(); ++i) {
    const double share = begins_[i + 1] - begins_[i];
    differs |= std::abs(learned_[i] - share) > kTolerance / static_cast<double>(threads);
  }
  if (!differs) return;
  loops_ = 0;
  for (std::size_t i = 0; i + 1 < learned_.size(); ++i) begins_[i + 1] = begins_[i] + learned_[i];
  begins_.back() = 1.0;
}

std::int64_t ShareBalance::first(int thread, std::int64_t tasks) const {
  const double at = begins_[static_cast<std::size_t>(thread)] * static_cast<double>(tasks);
  return static_cast<std::int64_t>(at + 0.5);
}

}  // namespace leq
