// Loops that only read memory or only multiply, one body for all instruction sets. LimitMeter times
// them. A level's file names its registers and instructions; each has its own copy of the loops, in
// an unnamed namespace.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cpu_features.h"

namespace leq::cpu {

// Independent multiply-adds in registers.
template <class Number>
struct Products {
  Number (*run)(std::int64_t rounds) noexcept = nullptr;  // using the result keeps them alive
  double operations = 0;  // per round; a multiply and an add are two
  const char* name = "";  // of the instruction
};

struct LimitKernels {
  // Adds up 64-byte aligned memory; `bytes` must be a multiple of 512. The second loop prefetches.
  // Both exist because the faster one differs from machine to machine.
  using Read = std::uint64_t (*)(const std::byte* data, std::size_t bytes) noexcept;
  std::array<Read, 2> read = {};
  Products<std::int32_t> int8 = {};
  // Like int8, for codes of 2, 3 and 4 bits times int8, if an exact instruction sequence is faster
  // than int8's; otherwise null. With fewer bits, a 16-bit sum holds more products.
  std::array<Products<std::int32_t>, 3> codes = {};
  Products<float> f32 = {};
  Products<double> f64 = {};
};

struct LimitLevel {
  Isa isa;
  const LimitKernels& (*kernels)();
};
// All levels of this processor family. Each of x86, arm and generic defines a list, and the build
// compiles one of them.
std::span<const LimitLevel> limit_levels();
// The loops of a level, which this processor must support.
const LimitKernels& limit_kernels(Isa isa);

const LimitKernels& limit_kernels_portable();

namespace {

template <class Number, std::size_t kBytes>
struct RegisterOf {
  typedef Number Type __attribute__((vector_size(kBytes)));
};
template <class Number, std::size_t kBytes>
using Register = typename RegisterOf<Number, kBytes>::Type;

// Reads memory in registers of kBytes. With wider vectors than those of the instruction set, g++ 12
// keeps the sums in memory, so that the loop waits for these accesses instead of for the data. If
// `ahead` > 0, each line is prefetched `ahead` bytes before it is read.
template <std::size_t kBytes, std::size_t ahead>
std::uint64_t read_memory(const std::byte* data, std::size_t bytes) noexcept {
  using Vector = Register<std::uint64_t, kBytes>;
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kSums = 8;
  // Volatile, so that they are read in order. Otherwise g++ moves the second half of 512 bytes
  // before the first, and a processor whose hardware prefetcher follows sequential reads (Zen 4)
  // reads only 17 GB/s instead of 30.
  const auto* vectors = reinterpret_cast<const volatile Vector*>(data);
  Vector sums[kSums] = {};
  for (std::size_t i = 0; i < bytes / kBytes; i += kSums) {
#pragma GCC unroll 8
    for (std::size_t j = 0; j < kSums; ++j) {
      if (ahead > 0 && j * kBytes % kLine == 0) {
        __builtin_prefetch(data + (i + j) * kBytes + ahead, 0, 2);
      }
      sums[j] += vectors[i + j];
    }
  }
  std::uint64_t sum = 0;
  for (const Vector& lanes : sums) {
    for (std::size_t lane = 0; lane < kBytes / sizeof(sum); ++lane) sum += lanes[lane];
  }
  return sum;
}
template <std::size_t kBytes>
constexpr std::array<LimitKernels::Read, 2> kReads = {read_memory<kBytes, 0>,
                                                      read_memory<kBytes, 4096>};

// Step::run adds products to a sum, on kChains independent sums per round, or to all of them at
// once, if a sum takes several dependent instructions. Returns lane 0 of the total. Steps are
// assembly, because the compiler would compute equal products only once, and g++ 12 keeps sums of
// intrinsics in memory.
template <class Number, class Sum, std::size_t kBytes, int kChains, class Step>
Number multiply(std::int64_t rounds) noexcept {
  Register<Sum, kBytes> sums[kChains];
  const Step step;
#pragma GCC unroll 24
  for (auto& sum : sums) sum = Register<Sum, kBytes>{};
  for (std::int64_t round = 0; round < rounds; ++round) {
    if constexpr (requires { step.run(sums); }) {
      step.run(sums);
    } else {
#pragma GCC unroll 24
      for (auto& sum : sums) step.run(sum);
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = sums[0] + sums[i];
  return sums[0][0];
}

// `each`: products of a step.
template <class Number, std::size_t kBytes, int kChains, class Step, class Sum = Number>
constexpr Products<Number> products(const char* name, std::size_t each) {
  return {multiply<Number, Sum, kBytes, kChains, Step>, 2.0 * kChains * static_cast<double>(each),
          name};
}

}  // namespace
}  // namespace leq::cpu
