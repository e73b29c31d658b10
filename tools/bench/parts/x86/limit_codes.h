// Limits of integer products without VNNI, in registers of kBytes. Written in assembly, because the
// compiler would compute equal products once and g++ 12 would keep sums in memory. Include only in
// files that define limits, as each gets its own copy in an unnamed namespace.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "eval/limits/limit_chains.h"
#include "eval/limits/limit_kernels.h"

namespace leq::cpu {
namespace {

// Number of products of 2, 3 and 4-bit codes that fit in a 16-bit sum without overflow.
constexpr std::size_t kInNarrow[] = {32, 16, 8};

// Multiplies pairs of codes that were widened to 16 bits.
template <std::size_t kBytes, int kChains>
std::int32_t int8_products(std::int64_t rounds) noexcept {
  using Words = Register<std::int16_t, kBytes>;
  const Words x = Words{} + std::int16_t{3}, y = Words{} - std::int16_t{5};
  return chains<std::int32_t, kBytes, kChains>(rounds, [&](Register<std::int32_t, kBytes>& sum) {
    Words products;
    asm volatile("vpmaddwd %2, %3, %0\n vpaddd %0, %1, %1"
                 : "=&v"(products), "+v"(sum)
                 : "v"(x), "v"(y));
  });
}

// Products of pairs of bytes. kNarrow products are summed in 16 bits before the sums are widened,
// in kChains registers of narrow sums and as many of wide sums.
template <std::size_t kBytes, int kChains, std::size_t kNarrow>
std::int32_t code_products(std::int64_t rounds) noexcept {
  using Bytes = Register<std::int8_t, kBytes>;
  using Words = Register<std::int16_t, kBytes>;
  using Sums = Register<std::int32_t, kBytes>;
  const Bytes x = Bytes{} + std::int8_t{3}, y = Bytes{} - std::int8_t{5};
  const Words ones = Words{} + std::int16_t{1};
  Sums sums[kChains];
#pragma GCC unroll 24
  for (auto& sum : sums) sum = Sums{};
  for (std::int64_t round = 0; round < rounds; ++round) {
    Words narrow[kChains], products;
#pragma GCC unroll 12
    for (auto& sum : narrow) asm volatile("vpmaddubsw %2, %1, %0" : "=&v"(sum) : "v"(x), "v"(y));
#pragma GCC unroll 7
    for (std::size_t i = 1; i < kNarrow; ++i) {
#pragma GCC unroll 12
      for (auto& sum : narrow) {
        asm volatile("vpmaddubsw %3, %2, %0\n vpaddw %0, %1, %1"
                     : "=&v"(products), "+v"(sum)
                     : "v"(x), "v"(y));
      }
    }
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      asm volatile("vpmaddwd %3, %2, %0\n vpaddd %0, %1, %1"
                   : "=&v"(products), "+v"(sums[i])
                   : "v"(narrow[i]), "v"(ones));
    }
  }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sums[0] = sums[0] + sums[i];
  return sums[0][0];
}

// Sets the integer members of the table.
template <std::size_t kBytes, int kChains, int kCodeChains>
constexpr void set_products(LimitKernels& kernels) {
  kernels.int8 = int8_products<kBytes, kChains>;
  kernels.int8_operations = kChains * static_cast<double>(kBytes);
  kernels.codes = {code_products<kBytes, kCodeChains, kInNarrow[0]>,
                   code_products<kBytes, kCodeChains, kInNarrow[1]>,
                   code_products<kBytes, kCodeChains, kInNarrow[2]>};
  for (std::size_t i = 0; i < kernels.codes.size(); ++i) {
    kernels.codes_operations[i] = kCodeChains * 2.0 * static_cast<double>(kBytes * kInNarrow[i]);
  }
}

}  // namespace
}  // namespace leq::cpu
