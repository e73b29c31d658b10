#include "backend/cpu/limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "backend/cpu/limit_kernels.h"

namespace leq::cpu {
namespace {

TEST(LimitKernels, ReadEveryByte) {
  HugeBuffer buffer(4096, "test");
  auto* words = reinterpret_cast<std::uint64_t*>(buffer.data());
  std::uint64_t want = 0;
  for (std::size_t i = 0; i < 512; ++i) {
    words[i] = i * 0x9e3779b97f4a7c15ull;
    want += words[i];
  }
  for (const Isa isa : supported_isas()) {
    EXPECT_EQ(limit_kernels(isa).read(buffer.data(), 4096), want) << isa_name(isa);
  }
}

TEST(LimitKernels, MultiplyAsOftenAsTheySay) {
  for (const Isa isa : {Isa::avx2, Isa::avx512vnni}) {
    const auto known = supported_isas();
    if (std::find(known.begin(), known.end(), isa) == known.end()) continue;
    const LimitKernels& kernels = limit_kernels(isa);
    // Every product is -15. The result is one of the 32-bit lanes, all chains added; a lane holds
    // 4 products of a chain (AVX-512) or 2 (AVX2), and the operations count two a product.
    const int lanes = isa == Isa::avx512vnni ? 16 : 8;
    EXPECT_EQ(kernels.int8(10), -15 * 10 * static_cast<int>(kernels.int8_operations) / 2 / lanes);
  }
}

TEST(LimitMeter, MeasuresSomethingOnEveryLevel) {
  for (const Isa isa : supported_isas()) {
    LimitMeter meter(1, isa);
    EXPECT_GT(meter.read_gbps(8 << 20), 0.01) << isa_name(isa);
    EXPECT_GT(meter.int8_gops(), 0.01) << isa_name(isa);
    EXPECT_GT(meter.f32_gflops(), 0.001) << isa_name(isa);
    EXPECT_GT(meter.f64_gflops(), 0.001) << isa_name(isa);
    EXPECT_FALSE(meter.int8_name().empty());
    EXPECT_FALSE(meter.f32_name().empty());
  }
}

}  // namespace
}  // namespace leq::cpu
