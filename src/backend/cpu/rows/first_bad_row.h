// The first row of a batch in which any thread found a value that is not finite.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string_view>

#include "backend/checks.h"

namespace leq::cpu {

class FirstBadRow {
 public:
  void report(std::int64_t row) noexcept {
    std::int64_t seen = row_.load(std::memory_order_relaxed);
    while (row < seen && !row_.compare_exchange_weak(seen, row, std::memory_order_relaxed)) {
    }
  }
  // Called after the threads are done: throws the Error of fail_not_finite if a row was reported.
  void check(std::string_view site) const {
    const std::int64_t row = row_.load(std::memory_order_relaxed);
    if (row != kNone) fail_not_finite(site, row);
  }

 private:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> row_{kNone};
};

}  // namespace leq::cpu
