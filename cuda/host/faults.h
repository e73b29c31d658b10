// Rows that kernels found not to be finite, reported when the host waits: each name of an operation
// has a number, in the order of first use and so of the forward pass, and the lowest wins. Numbers
// stay: recorded steps hold them.
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

  // For an operation that is about to be launched; `site` is a linear's name or like "norm".
  Fault watch(std::string_view site);
  // Puts the word's way to the host on the stream; check() reads it after a synchronize and throws
  // Error naming site and row where there is one.
  void collect() { collect(seen_); }
  void check() { check(seen_); }
  // Both around a wait for the stream.
  void synchronize();
  // The same through memory of the caller's, kWordBytes at its start, for who waits for an event.
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
