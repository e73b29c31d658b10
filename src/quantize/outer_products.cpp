#include "quantize/outer_products.h"

namespace leq {

void add_outer_products(std::span<const float> x, std::int64_t tokens, std::int64_t columns,
                        std::span<double> h, ThreadPool& pool) {
  const auto k = static_cast<std::size_t>(columns);
  pool.run(columns, [&](std::int64_t task, int) {
    const auto i = static_cast<std::size_t>(task);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const float* const row = x.data() + t * columns;
      const double factor = static_cast<double>(row[i]);
      for (std::size_t j = 0; j < k; ++j) h[i * k + j] += factor * static_cast<double>(row[j]);
    }
  });
}

}  // namespace leq
