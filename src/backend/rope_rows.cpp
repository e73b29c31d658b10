#include "backend/rope_rows.h"

#include <cmath>

namespace leq {

void fill_rope_rows(const RopeTable& rope, std::int64_t first, std::int64_t count, float* rows) {
  const auto half = std::ssize(rope.inv_freq);
  for (std::int64_t position = first; position < first + count; ++position, rows += 2 * half) {
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(position) * rope.inv_freq[static_cast<std::size_t>(i)];
      rows[i] = static_cast<float>(std::cos(double{angle})) * rope.attention_factor;
      rows[half + i] = static_cast<float>(std::sin(double{angle})) * rope.attention_factor;
    }
  }
}

}  // namespace leq
