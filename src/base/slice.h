// A contiguous range of rows, columns or heads.
#pragma once

#include <cstdint>

namespace leq {

struct Slice {
  std::int64_t first = 0, last = 0;  // [first, last)

  std::int64_t count() const { return last - first; }
  bool empty() const { return first == last; }
  bool operator==(const Slice&) const = default;
};

}  // namespace leq
