#include "tools/bench/parts/limits.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>

#include "tools/bench/parts/limit_kernels.h"

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
    for (const auto read : limit_kernels(isa).read) {
      EXPECT_EQ(read(buffer.data(), 4096), want) << isa_name(isa);
    }
  }
}

// The lanes of a register or tile of accumulators; each lane adds up its share of the products.
const std::map<Isa, int> kLanes = {{Isa::avx2, 8},        {Isa::avxvnni, 8},     {Isa::avx512, 16},
                                   {Isa::avx512vnni, 16}, {Isa::avx512amx, 256}, {Isa::neon, 8},
                                   {Isa::dotprod, 4},     {Isa::i8mm, 4}};

TEST(LimitKernels, MultiplyAsOftenAsTheySay) {
  for (const Isa isa : supported_isas()) {
    if (!kLanes.contains(isa)) continue;  // portable code adds other numbers
    const LimitKernels& kernels = limit_kernels(isa);
    // Every product is -15. The kernel adds up its accumulators, returns one lane of the sum, and
    // counts two operations per product.
    EXPECT_EQ(kernels.int8.run(10),
              -15 * 10 * static_cast<int>(kernels.int8.operations) / 2 / kLanes.at(isa))
        << isa_name(isa);
    for (std::size_t i = 0; i < kernels.codes.size(); ++i) {
      if (kernels.codes[i].run == nullptr) continue;
      EXPECT_EQ(kernels.codes[i].run(10),
                -15 * 10 * static_cast<int>(kernels.codes[i].operations) / 2 / kLanes.at(isa))
          << isa_name(isa) << ", " << i + 2 << " bits";
    }
  }
}

// f32 lanes of the levels that have a loop of their own; other levels use one of these loops.
const std::map<Isa, int> kFloatLanes = {{Isa::avx2, 8},
                                        {Isa::avxvnni, 8},
                                        {Isa::avx512, 16},
                                        {Isa::avx512vnni, 16},
                                        {Isa::avx512amx, 16}};

TEST(LimitKernels, MultiplyFloatsAsOftenAsTheySay) {
  for (const Isa isa : supported_isas()) {
    if (!kFloatLanes.contains(isa)) continue;
    const LimitKernels& kernels = limit_kernels(isa);
    // Repeated x / 2 + 1 converges to 2 in every accumulator; the result is one lane of their sum.
    EXPECT_EQ(kernels.f32.run(200), kernels.f32.operations / kFloatLanes.at(isa)) << isa_name(isa);
    EXPECT_EQ(kernels.f64.run(200), kernels.f64.operations / kFloatLanes.at(isa) * 2)
        << isa_name(isa);
  }
}

TEST(LimitMeter, MeasuresSomethingOnEveryLevel) {
  for (const Isa isa : supported_isas()) {
    LimitMeter meter(1, isa);
    EXPECT_GT(meter.read_gbps(8 << 20), 0.01) << isa_name(isa);
    for (const int bits : {2, 3, 4, 8}) {
      EXPECT_GT(meter.int_gops(bits), 0.01) << isa_name(isa);
      EXPECT_FALSE(meter.int_name(bits).empty());
    }
    EXPECT_GT(meter.f32_gflops(), 0.001) << isa_name(isa);
    EXPECT_GT(meter.f64_gflops(), 0.001) << isa_name(isa);
    EXPECT_FALSE(meter.f32_name().empty());
  }
}

}  // namespace
}  // namespace leq::cpu
