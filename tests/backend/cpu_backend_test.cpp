// Tests the CPU backend's memory, rows, embedding, norms and gathering of rows.
#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "base/half.h"
#include "base/random.h"
#include "errors.h"
#include "tensor/pack.h"

namespace leq {
namespace {

std::vector<float> random_numbers(std::int64_t n, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(n));
  for (float& x : numbers) x = random.normal();
  return numbers;
}

TEST(CpuBackend, CountsAllocatedBytesAndTheirPeak) {
  const auto backend = make_cpu_backend({2, Isa::portable});
  EXPECT_EQ(backend->memory().allocated(), 0u);
  {
    const Buffer small(backend->memory(), 100);
    Buffer large(backend->memory(), std::size_t{5} << 20);
    EXPECT_EQ(backend->memory().allocated(), 100 + (std::size_t{5} << 20));
    for (const Buffer* buffer : {&small, const_cast<const Buffer*>(&large)}) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0u);
      EXPECT_TRUE(std::all_of(buffer->data(), buffer->data() + buffer->size(),
                              [](std::byte b) { return b == std::byte{0}; }));
    }
    large.data()[large.size() - 1] = std::byte{1};
    Buffer moved = std::move(large);
    EXPECT_EQ(backend->memory().allocated(), 100 + (std::size_t{5} << 20));
  }
  EXPECT_EQ(backend->memory().allocated(), 0u);
  EXPECT_EQ(backend->memory().peak(), 100 + (std::size_t{5} << 20));
  EXPECT_EQ(Buffer(backend->memory(), 0).data(), nullptr);
}

TEST(CpuBackend, MoreMemoryThanThereIsIsAnError) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  test::expect_error([&] { const Buffer buffer(backend->memory(), std::size_t{1} << 60); },
                     {"memory"});
  EXPECT_EQ(backend->memory().allocated(), 0u);
}

TEST(CpuBackend, RowsAllocateTheBytesOfTheirLayout) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  for (const bool values : {true, false}) {
    for (const ActKind act : {ActKind::row, ActKind::g128}) {
      for (const int sum_group : {0, 32, 128}) {
        for (const std::int64_t width : {1, 100, 128, 2048, 5632}) {
          const RowsFormat format{values, act, sum_group == 0, sum_group};
          const std::size_t before = backend->memory().allocated();
          const Rows rows = backend->allocate_rows(7, width, format);
          EXPECT_EQ(backend->memory().allocated() - before,
                    backend->layout().rows(7, width, format).bytes);
          const std::int64_t padded = (width + 127) / 128 * 128;
          EXPECT_EQ(rows.values != nullptr, values);
          EXPECT_EQ(rows.code_stride, padded + 64);
          EXPECT_EQ(rows.scale_stride, act == ActKind::row ? 1 : padded / 128);
          EXPECT_EQ(rows.sum_stride, sum_group == 0 ? 0 : padded / sum_group);
        }
      }
    }
  }
}

TEST(CpuBackend, ScratchAllocatesTheBytesOfTheLayout) {
  for (const int threads : {1, 2, 4}) {
    for (const int kv_heads : {1, 2, 32}) {
      const AttentionShape shape{32, kv_heads, 64, 0, nullptr, nullptr, true};
      for (const std::int64_t tokens : {1, 7, 512}) {
        for (const std::int64_t context : {64, 4096, 100000}) {
          const auto backend = make_cpu_backend({threads, Isa::portable});
          backend->memory().scratch(backend->layout().scratch_bytes(tokens, shape, context));
          const std::size_t bytes = backend->layout().scratch_bytes(tokens, shape, context);
          EXPECT_EQ(backend->memory().allocated(), bytes);
          backend->memory().scratch(backend->layout().scratch_bytes(
              std::min<std::int64_t>(tokens, 3), shape, context / 2));
          EXPECT_EQ(backend->memory().peak(), bytes) << "a smaller batch wants more";
        }
      }
    }
  }
}

TEST(CpuBackend, EmbedsTheRowsOfEveryScheme) {
  const std::int64_t rows = 70, columns = 200;
  const auto numbers = random_numbers(rows * columns, 3);
  const auto backend = make_cpu_backend({2, Isa::portable});
  for (const char* name :
       {"f32", "f16", "bf16", "int8", "int8-g64", "int4-g128", "int4-g32", "int3-g64", "int2-g128",
        "uint8", "uint8-g32", "uint4-g64", "uint3-g32", "uint2-g128", "nf4"}) {
    const PackedWeight packed =
        pack_weight(numbers, rows, columns, require_scheme(name, "test"), ActKind::none, "table");
    const WeightView table = packed.view();
    const std::vector<std::int32_t> ids = {0, 69, 63, 64, 5, 5};
    Rows x = backend->allocate_rows(6, columns, {});
    backend->embed({table, ids}, x);
    for (std::size_t t = 0; t < ids.size(); ++t) {
      for (std::int64_t k = 0; k < columns; ++k) {
        const float want =
            !table.scheme.is_integer()
                ? [&] {
                    std::vector<float> row(static_cast<std::size_t>(columns));
                    unpack_row(table, ids[t], row);
                    return row[static_cast<std::size_t>(k)];
                  }()
                : static_cast<float>(code_at(table, ids[t], k) - zero_at(table, ids[t], k)) *
                      scale_at(table, ids[t], k);
        ASSERT_EQ(x.values[static_cast<std::int64_t>(t) * x.value_stride + k], want)
            << name << " row " << ids[t] << " column " << k;
      }
    }
    const std::vector<float> first(x.values, x.values + columns);
    const std::vector<std::int32_t> one = {1}, beyond = {70}, negative = {-1};
    Rows second = backend->allocate_rows(1, columns, {});
    backend->embed({table, one}, second);
    backend->embed({table, std::span(ids).first(1), &table, one}, x);
    for (std::int64_t k = 0; k < columns; ++k) {
      ASSERT_EQ(x.values[k], first[static_cast<std::size_t>(k)] + second.values[k]) << name;
    }
    EXPECT_THROW(backend->embed({table, beyond}, x), Error);
    EXPECT_THROW(backend->embed({table, negative}, x), Error);
    EXPECT_THROW(backend->embed({table, one, &table, beyond}, x), Error);
    EXPECT_THROW(backend->embed({table, ids, &table, one}, x), Error);
  }
}

TEST(CpuBackend, NormWritesTheCodesOfItsRows) {
  const std::int64_t width = 300, tokens = 9;
  const auto input = random_numbers(tokens * width, 5), gain = random_numbers(width, 6),
             beta = random_numbers(width, 7);
  for (const Isa isa : supported_isas()) {
    for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
      const auto backend = make_cpu_backend({2, isa});
      const Norm norm{kind, gain.data(), beta.data(), 1e-5f, width};
      Rows x = backend->allocate_rows(tokens, width, {});
      for (std::int64_t t = 0; t < tokens; ++t) {
        std::copy_n(input.data() + t * width, width, x.values + t * x.value_stride);
      }
      Rows coded = backend->allocate_rows(tokens, width, {false, ActKind::g128, false, 64});
      backend->norm(x, tokens, norm, coded);
      backend->norm(x, tokens, norm, x);  // in place
      for (std::int64_t t = 0; t < tokens; ++t) {
        const float* row = x.values + t * x.value_stride;
        std::vector<int> sums(6);
        for (std::int64_t k = 0; k < 384; ++k) {
          const int code = static_cast<std::int8_t>(coded.codes[t * coded.code_stride + k]);
          sums[static_cast<std::size_t>(k / 64)] += code;
          if (k >= width) {
            ASSERT_EQ(code, 0) << "pad " << k;
            continue;
          }
          float largest = 0;
          for (std::int64_t i = k / 128 * 128; i < std::min(k / 128 * 128 + 128, width); ++i) {
            largest = std::max(largest, std::abs(row[i]));
          }
          ASSERT_EQ(coded.scales[t * coded.scale_stride + k / 128], largest / 127.0f);
          ASSERT_EQ(code, static_cast<int>(std::nearbyint(row[k] * (127.0f / largest))));
        }
        for (std::int64_t g = 0; g < 6; ++g) {
          ASSERT_EQ(coded.sums[t * coded.sum_stride + g], sums[static_cast<std::size_t>(g)]);
        }
      }
    }
  }
}

TEST(CpuBackend, RowsOfZerosHaveScaleOneAndRowsOfNaNAreRefused) {
  const auto backend = make_cpu_backend({2, supported_isas().back()});
  const std::vector<float> gain(130, 1.0f);
  const Norm norm{NormKind::rms, gain.data(), nullptr, 1e-5f, 130};
  Rows x = backend->allocate_rows(6, 130, {});
  Rows out = backend->allocate_rows(6, 130, {true, ActKind::row, true, 0});
  x.values[3] = 2.0f;
  backend->norm(x, 2, norm, out);
  EXPECT_EQ(out.scales[1], 1.0f);
  EXPECT_EQ(out.codes[out.code_stride + 7], 128);
  EXPECT_EQ(out.codes[3], 255);
  x.values[4 * x.value_stride + 129] = std::nanf("");
  test::expect_error([&] { backend->norm(x, 6, norm, out); }, {"token 4"});
}

TEST(CpuBackend, GathersAndDownloadsRows) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  Rows x = backend->allocate_rows(5, 3, {}), out = backend->allocate_rows(2, 3, {});
  for (std::int64_t t = 0; t < 5; ++t) {
    for (std::int64_t k = 0; k < 3; ++k) {
      x.values[t * x.value_stride + k] = static_cast<float>(10 * t + k);
    }
  }
  backend->gather_rows(x, std::vector<std::int32_t>{4, 1}, out);
  std::vector<float> host(6);
  backend->download(out, 2, host);
  EXPECT_EQ(host, (std::vector<float>{40, 41, 42, 10, 11, 12}));
  EXPECT_THROW(backend->gather_rows(x, std::vector<std::int32_t>{5}, out), Error);
  EXPECT_THROW(backend->gather_rows(x, std::vector<std::int32_t>{0, 1, 2}, out), Error);
  EXPECT_THROW(backend->download(out, 2, std::span(host).first(5)), Error);
}

TEST(KvTypes, NamesAreParsedAndCloseOnesAreNamed) {
  for (const KvType type : {KvType::f32, KvType::f16, KvType::int8}) {
    EXPECT_EQ(parse_kv_type(kv_type_name(type), Setting{"key_type"}), type);
  }
  test::expect_error([&] { parse_kv_type("q8_0", Setting{"value_type"}); }, {"int8", "value_type"},
                     ErrorKind::bad_setting);
  EXPECT_THROW(parse_kv_type("", Setting{"key_type"}), Error);
}

}  // namespace
}  // namespace leq
