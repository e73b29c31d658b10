// The multiply-add steps of x86 levels, in registers of kBytes.
#pragma once

#include "tools/bench/parts/limit_kernels.h"

namespace leq::cpu {

const LimitKernels& limit_kernels_avx2();
const LimitKernels& limit_kernels_avxvnni();
const LimitKernels& limit_kernels_avx512();
const LimitKernels& limit_kernels_avx512vnni();
const LimitKernels& limit_kernels_avx512amx();

namespace {

// Independent sums: they hide a latency of 4 or 5 cycles at 2 instructions per cycle, and fit into
// 16 registers of 32 bytes or 32 registers of 64 bytes.
template <std::size_t kBytes>
constexpr int kChains = kBytes == 32 ? 12 : 24;

// x = x / 2 + 1
template <std::size_t kBytes>
struct FloatStep {
  Register<float, kBytes> half = Register<float, kBytes>{} + 0.5f, one = half + half;
  __attribute__((always_inline)) void run(Register<float, kBytes>& x) const {
    asm volatile("vfmadd213ps %2, %1, %0" : "+v"(x) : "v"(half), "v"(one));
  }
};
template <std::size_t kBytes>
struct DoubleStep {
  Register<double, kBytes> half = Register<double, kBytes>{} + 0.5, one = half + half;
  __attribute__((always_inline)) void run(Register<double, kBytes>& x) const {
    asm volatile("vfmadd213pd %2, %1, %0" : "+v"(x) : "v"(half), "v"(one));
  }
};

// Products of bytes, four to a sum.
template <std::size_t kBytes>
struct ByteStep {
  using Bytes = Register<std::int8_t, kBytes>;
  Bytes x = Bytes{} + std::int8_t{3}, y = Bytes{} - std::int8_t{5};
  __attribute__((always_inline)) void run(Register<std::int32_t, kBytes>& sum) const {
    if constexpr (kBytes == 32) {
      asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y));
    } else {
      asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(y));
    }
  }
};

// Products of pairs of codes that were widened to 16 bits.
template <std::size_t kBytes>
struct WordStep {
  using Words = Register<std::int16_t, kBytes>;
  Words x = Words{} + std::int16_t{3}, y = Words{} - std::int16_t{5};
  __attribute__((always_inline)) void run(Register<std::int32_t, kBytes>& sum) const {
    Words products;
    asm volatile("vpmaddwd %2, %3, %0\n vpaddd %0, %1, %1"
                 : "=&v"(products), "+v"(sum)
                 : "v"(x), "v"(y));
  }
};

// kNarrow products of bytes are summed in 16 bits before these sums are widened. The chains
// alternate, so that no instruction waits for the one before it.
template <std::size_t kBytes, int kNarrow>
struct CodeStep {
  using Bytes = Register<std::int8_t, kBytes>;
  using Words = Register<std::int16_t, kBytes>;
  Bytes x = Bytes{} + std::int8_t{3}, y = Bytes{} - std::int8_t{5};
  Words ones = Words{} + std::int16_t{1};
  template <std::size_t kSums>
  __attribute__((always_inline)) void run(Register<std::int32_t, kBytes> (&sums)[kSums]) const {
    Words narrow[kSums], more;
#pragma GCC unroll 12
    for (auto& sum : narrow) asm volatile("vpmaddubsw %2, %1, %0" : "=&v"(sum) : "v"(x), "v"(y));
#pragma GCC unroll 7
    for (int i = 1; i < kNarrow; ++i) {
#pragma GCC unroll 12
      for (auto& sum : narrow) {
        asm volatile("vpmaddubsw %3, %2, %0\n vpaddw %0, %1, %1"
                     : "=&v"(more), "+v"(sum)
                     : "v"(x), "v"(y));
      }
    }
#pragma GCC unroll 12
    for (std::size_t i = 0; i < kSums; ++i) {
      asm volatile("vpmaddwd %3, %2, %0\n vpaddd %0, %1, %1"
                   : "=&v"(more), "+v"(sums[i])
                   : "v"(narrow[i]), "v"(ones));
    }
  }
};

// The loops of a level with VNNI.
template <std::size_t kBytes>
constexpr LimitKernels vnni_kernels(const char* name) {
  constexpr int kSums = kChains<kBytes>;
  return {.read = kReads<kBytes>,
          .int8 = products<std::int32_t, kBytes, kSums, ByteStep<kBytes>>(name, kBytes),
          .f32 = products<float, kBytes, kSums, FloatStep<kBytes>>("vfmadd", kBytes / 4),
          .f64 = products<double, kBytes, kSums, DoubleStep<kBytes>>("vfmadd", kBytes / 8)};
}

// The loops of a level without VNNI, which reads as AVX2 does. 32, 16 and 8 products of codes of 2,
// 3 and 4 bits fit into a 16-bit sum; with narrow sums in registers, there are half as many wide
// ones.
template <std::size_t kBytes, int kNarrow>
constexpr Products<std::int32_t> code_products(const char* name) {
  return products<std::int32_t, kBytes, kChains<kBytes> / 2, CodeStep<kBytes, kNarrow>>(
      name, kNarrow * kBytes);
}
template <std::size_t kBytes>
constexpr LimitKernels plain_kernels(const char* words, const char* bytes) {
  LimitKernels kernels = vnni_kernels<kBytes>("");
  kernels.read = kReads<32>;
  kernels.int8 =
      products<std::int32_t, kBytes, kChains<kBytes>, WordStep<kBytes>>(words, kBytes / 2);
  kernels.codes = {code_products<kBytes, 32>(bytes), code_products<kBytes, 16>(bytes),
                   code_products<kBytes, 8>(bytes)};
  return kernels;
}

}  // namespace
}  // namespace leq::cpu
