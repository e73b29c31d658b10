// Peak rates of this machine, measured at run time, to which leq-bench compares speeds.
#pragma once

#include <cstdint>
#include <string>

#include "base/cpu_features.h"
#include "base/huge_pages.h"
#include "base/thread_pool.h"

namespace leq::cpu {

// Each measurement takes a few tenths of a second and returns the best of several passes, because
// time taken by other processes does not describe the machine.
class LimitMeter {
 public:
  LimitMeter(int threads, Isa isa);

  // Reads a block of `working_set_bytes` (at most 2 GB) repeatedly with all threads. Returns GB/s
  // of the memory level that holds the block. Throws Error if there is too little memory.
  double read_gbps(std::uint64_t working_set_bytes);
  // Billions of operations per second for multiply-adds in registers: integer products into int32,
  // f32, f64. Integer products multiply codes of `bits` bits (8, or at most 4) by int8.
  double int_gops(int bits);
  double f32_gflops();
  double f64_gflops();

  // The instructions that are measured: "vpdpbusd", "vfmadd" (the same name for f32 and f64).
  std::string int_name(int bits) const;
  std::string f32_name() const;

 private:
  ThreadPool pool_;
  Isa isa_;
  HugeBuffer block_;
};

}  // namespace leq::cpu
