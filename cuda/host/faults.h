// Reports the rows in which kernels found non-finite values, when the host next waits. Each
// operation name gets a number in order of first use, i.e. the order of the forward pass; the
// lowest number is reported. Numbers never change, because recorded steps contain them.
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

  // Call this before an operation is launched. `site` is a linear's name or e.g. "norm".
  Fault watch(std::string_view site);
  // Enqueues the copy of the fault word to the host. After the stream was synchronized, check()
  // reads the word and throws Error with site and row if there was a fault.
  void collect() { collect(seen_); }
  void check() { check(seen_); }
  // Calls collect(), synchronizes the stream and calls check().
  void synchronize();
  // collect and check with the caller's pinned memory (kWordBytes); the caller waits for an event.
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
