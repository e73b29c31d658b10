// On the emulator times have no meaning, so each launch runs only once.
#include <chrono>

#include "bench/gpu/timing.h"

namespace leq::LEQ_GPU::bench {

double microseconds(rt::Stream& stream, int items, const std::function<void(int item)>& launch) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < items; ++i) launch(i);
  rt::synchronize(stream);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
             .count() /
         items;
}

}  // namespace leq::LEQ_GPU::bench
