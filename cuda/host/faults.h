// Reports the rows in which kernels found values that are not finite, when the host waits. Each
// operation name gets a number in order of first use, which is the order of the forward pass; the
// lowest one is reported. Numbers never change, because recorded steps contain them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/host/memory.h"
#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

class Faults {
 public:
  Faults(int device, rt::Stream& stream);

  // To be called before an operation is launched. `site` is a linear's name or e.g. "norm".
  Fault watch(std::string_view site);
  // Enqueues the copy of the fault word to the host. After a synchronize, check() reads the word
  // and throws Error naming site and row if there was a fault.
  void collect() { collect(seen_); }
  void check() { check(seen_); }
  // Synchronizes the stream; calls collect() before and check() after that.
  void synchronize();
  // The same with pinned memory of the caller (of kWordBytes), for callers that wait for an event.
  static constexpr std::size_t kWordBytes = sizeof(unsigned long long);
  void collect(const Pinned& seen);
  void check(const Pinned& seen);

 private:
  rt::Stream& stream_;
  DeviceScratch word_;
  Pinned seen_;
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  std::vector<std::string> sites_;
};

}  // namespace leq::LEQ_GPU
