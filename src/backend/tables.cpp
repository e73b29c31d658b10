#include "backend/tables.h"

#include <cmath>

#include "base/error.h"

namespace leq {

RopeTable make_rope(DeviceMemory& memory, std::span<const float> inv_freq, float attention_factor,
                    std::int64_t context) {
  const auto numbers = inv_freq.size() * 2 * static_cast<std::size_t>(context);
  return {inv_freq, attention_factor, context, 0, Buffer(memory, numbers * sizeof(float))};
}

void set_query_factors(DeviceMemory& memory, RopeTable& rope, std::int64_t period,
                       std::span<const float> factors) {
  ensure(period > 0 && std::ssize(factors) * period >= rope.context,
         "factors of queries: ", factors.size(), " of ", period, " positions for a context of ",
         rope.context);
  rope.query_period = period;
  rope.query_factors = Buffer(memory, factors.size_bytes());
  memory.write(rope.query_factors.data(), std::as_bytes(factors));
}

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
