// Peak rates of this machine, measured at run time: the reference of leq-bench.
#pragma once

#include <cstdint>
#include <string>

#include "base/cpu_features.h"
#include "base/huge_buffer.h"
#include "base/thread_pool.h"

namespace leq::cpu {

// Each measurement takes a few tenths of a second and returns the best of several passes: time lost
// to other processes is not a property of the machine.
class LimitMeter {
 public:
  LimitMeter(int threads, Isa isa);

  // Reads a block of `working_set_bytes` (at most 2 GB of it) repeatedly with all threads: GB/s of
  // the memory level that holds it. Throws Error where memory is short.
  double read_gbps(std::uint64_t working_set_bytes);
  // Multiply-adds of products into int32, of f32 and of f64, from registers: operations / 1e9 per
  // second. Integer products are those of codes of `bits` (8, or at most 4) with int8.
  double int_gops(int bits);
  double f32_gflops();
  double f64_gflops();

  // The instructions measured: "vpdpbusd", "vfmadd" (the same name for f32 and f64).
  std::string int_name(int bits) const;
  std::string f32_name() const;

 private:
  ThreadPool pool_;
  Isa isa_;
  HugeBuffer block_;
};

}  // namespace leq::cpu
