// The processor time of work, for tests of how it grows.
#pragma once

#include <time.h>

namespace leq::test {

// Seconds of this thread in which `work` runs.
template <class Work>
double processor_seconds(const Work& work) {
  const auto now = [] {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

}  // namespace leq::test
