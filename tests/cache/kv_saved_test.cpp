// Tests saved sequences: a cache with the same types restores the same bytes, and bytes that are
// not a saved sequence of this cache are refused.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/half.h"
#include "base/random.h"
#include "cache/kv_cache.h"
#include "errors.h"
#include "kv_numbers.h"

namespace leq {
namespace {

constexpr KvType kTypes[] = {KvType::f32, KvType::f16, KvType::int8};
constexpr KvType kPackedTypes[] = {KvType::int4, KvType::simq8, KvType::simq4, KvType::simq2};

// Lets the backend write `rows` positions of random keys and values to every layer.
void feed(Backend& backend, KvCache& cache, std::int32_t sequence, std::int64_t rows,
          std::uint64_t seed) {
  const KvShape& shape = cache.shape();
  const AttentionShape attention{shape.kv_heads, shape.kv_heads, shape.head_dim, 0,
                                 nullptr,        nullptr,        false};
  SequenceRun run;
  run.rows = rows;
  run.first_position = cache.length(sequence);
  cache.append(sequence, rows);
  run.pages = cache.pages(sequence);
  backend.memory().scratch(backend.layout().scratch_bytes(rows, attention, shape.positions));
  Rows qkv = backend.allocate_rows(rows, std::int64_t{3} * shape.kv_heads * shape.head_dim, {});
  RopeTable rope = make_rope(backend.memory(), {}, 1.0f, shape.positions);
  Random random(seed);
  for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
    for (std::int64_t i = 0; i < rows * qkv.value_stride; ++i) qkv.values[i] = random.normal();
    const KvLayer kv = cache.layer(layer);
    backend.quantize_kv_blocks({rows, {&run, 1}}, attention, {&kv, 1});
    backend.rope_append(qkv, {rows, {&run, 1}}, attention, rope, kv);
  }
  cache.commit();
}

// Feeds rows in one step; row i has the numbers of feed(..., 1, i + 1).
void feed_rows(Backend& backend, KvCache& cache, std::int32_t sequence, std::int64_t rows) {
  const KvShape& shape = cache.shape();
  const AttentionShape attention{shape.kv_heads, shape.kv_heads, shape.head_dim, 0,
                                 nullptr,        nullptr,        false};
  SequenceRun run;
  run.rows = rows;
  cache.append(sequence, rows);
  run.pages = cache.pages(sequence);
  backend.memory().scratch(backend.layout().scratch_bytes(rows, attention, shape.positions));
  Rows qkv = backend.allocate_rows(rows, std::int64_t{3} * shape.kv_heads * shape.head_dim, {});
  RopeTable rope = make_rope(backend.memory(), {}, 1.0f, shape.positions);
  for (std::int64_t row = 0; row < rows; ++row) {
    Random random(static_cast<std::uint64_t>(row + 1));
    for (std::int64_t i = 0; i < qkv.value_stride; ++i) {
      qkv.values[row * qkv.value_stride + i] = random.normal();
    }
  }
  const KvLayer kv = cache.layer(0);
  backend.quantize_kv_blocks({rows, {&run, 1}}, attention, {&kv, 1});
  backend.rope_append(qkv, {rows, {&run, 1}}, attention, rope, kv);
  cache.commit();
}

std::vector<std::byte> numbers(Backend& backend, const KvCache& cache, std::int32_t sequence) {
  return test::kv_numbers(cache, backend.memory(), backend.layout(), sequence);
}

constexpr std::size_t kHeader = 32;  // bytes before the pages

TEST(KvSaved, ComesBackByteForByteForAllTypes) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  for (const KvType keys : kTypes) {
    for (const KvType values : kTypes) {
      for (const int dim : {22, 64}) {
        for (const std::int64_t length : {1, 64, 150}) {
          KvCache cache(backend->memory(), backend->layout(), {2, 3, dim, keys, values, 400, 2});
          feed(*backend, cache, 0, 17, 1);  // so that page numbers differ
          feed(*backend, cache, 1, length, 2);
          const auto saved = cache.save(1), before = numbers(*backend, cache, 1);
          (void)cache.truncate(0, 3);
          feed(*backend, cache, 1, 30, 3);
          cache.load(1, saved, "test");
          EXPECT_EQ(cache.length(1), length);
          EXPECT_EQ(numbers(*backend, cache, 1), before);
          KvCache other(backend->memory(), backend->layout(), {2, 3, dim, keys, values, 200, 1});
          other.load(0, saved, "test");
          EXPECT_EQ(numbers(*backend, other, 0), before);
          EXPECT_EQ(other.save(0), saved);
          EXPECT_EQ(cache.length(0), 3);
        }
      }
    }
  }
}

TEST(KvSaved, PackedCodesComeBackWithTheirCopies) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  for (const KvType keys : kPackedTypes) {
    for (const KvType values : {keys, KvType::f16, KvType::simq4}) {
      for (const int dim : {22, 64}) {
        for (const std::int64_t length : {1, 64, 150, 900}) {
          KvShape shape = {2, 3, dim, keys, values, 2000, 2};
          if (length == 64 || length == 900) {  // codes for every complete block
            shape.residual = kv_residual(keys, values);
            shape.residual->sinks = shape.residual->recent = 0;
          }
          KvCache cache(backend->memory(), backend->layout(), shape);
          feed(*backend, cache, 1, length, 2);
          const auto saved = cache.save(1), before = numbers(*backend, cache, 1);
          // A draft that is rejected and truncated leaves no change.
          for (const std::int64_t draft : {1, 16, 64}) {
            feed(*backend, cache, 1, draft, 3);
            ASSERT_EQ(cache.truncate(1, length), length);
            ASSERT_EQ(numbers(*backend, cache, 1), before)
                << kv_type_name(keys) << " draft of " << draft;
          }
          KvCache other(backend->memory(), backend->layout(), shape);
          feed(*backend, other, 0, 70, 4);
          other.load(1, saved, "test");
          EXPECT_EQ(other.length(1), length);
          EXPECT_EQ(numbers(*backend, other, 1), before);
          // Up to 40 positions of a loaded sequence can be truncated; what is appended then gives the
          // numbers that it gives to the saved sequence.
          const std::int64_t less = length - std::min<std::int64_t>(length, 40);
          KvCache third(backend->memory(), backend->layout(), shape);
          third.load(0, saved, "test");
          ASSERT_EQ(third.truncate(0, less), less);
          if (less > 0) {
            KvCache fourth(backend->memory(), backend->layout(), shape);
            fourth.load(0, third.save(0), "test");
            feed(*backend, third, 0, 200, 6);
            feed(*backend, fourth, 0, 200, 6);
            ASSERT_EQ(cache.truncate(1, less), less);
            feed(*backend, cache, 1, 200, 6);
            ASSERT_EQ(numbers(*backend, third, 0), numbers(*backend, cache, 1))
                << less << " of " << length;
            ASSERT_EQ(numbers(*backend, fourth, 0), numbers(*backend, cache, 1))
                << less << " of " << length;
            ASSERT_EQ(cache.truncate(1, 0), 0);
            cache.load(1, saved, "test");
          }
          // Both sequences must give the same results when they are continued.
          feed(*backend, cache, 1, 90, 5);
          feed(*backend, other, 1, 90, 5);
          EXPECT_EQ(numbers(*backend, other, 1), numbers(*backend, cache, 1));
        }
      }
    }
  }
}

TEST(KvSaved, AppendingOneByOneIsAppendingInBulk) {
  const auto backend = make_cpu_backend({1, chosen_isa()});
  for (const KvType type : kPackedTypes) {
    const KvShape shape = {1, 2, 32, type, type, 1000, 1};
    KvCache bulk(backend->memory(), backend->layout(), shape);
    KvCache steps(backend->memory(), backend->layout(), shape);
    std::uint64_t seed = 0;
    for (std::int64_t i = 0; i < 300; ++i) feed(*backend, steps, 0, 1, ++seed);
    // All rows are fed in one step; a row's numbers depend only on its seed.
    feed_rows(*backend, bulk, 0, 300);
    EXPECT_EQ(numbers(*backend, bulk, 0), numbers(*backend, steps, 0)) << kv_type_name(type);
  }
}

TEST(KvSaved, RefusesOtherZonesAndDamagedOnes) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  const KvShape shape = {1, 1, 8, KvType::simq4, KvType::simq4, 400, 1};
  KvCache cache(backend->memory(), backend->layout(), shape);
  feed(*backend, cache, 0, 200, 1);
  const auto saved = cache.save(0);
  for (const KvResidual residual : {KvResidual{5, 32, 32}, KvResidual{4, 31, 32}}) {
    KvShape other = shape;
    other.residual = residual;
    KvCache target(backend->memory(), backend->layout(), other);
    EXPECT_THROW(target.load(0, saved, "test"), Error);
  }
  for (std::size_t size = 0; size < saved.size(); size += size < 100 ? 1 : 37) {
    EXPECT_THROW(cache.load(0, std::span(saved).first(size), "test"), Error) << size;
  }
  // Invalid copies_from: no page multiple, past what the next query reads, negative, past the end.
  for (const std::int64_t from : {1, 192, -64, 100000}) {
    auto wrong = saved;
    std::memcpy(wrong.data() + 24, &from, sizeof from);
    EXPECT_THROW(cache.load(0, wrong, "test"), Error) << from;
  }
  for (const std::int32_t from : {1, 64, -64}) {  // frames_from: no layer has a window
    auto wrong = saved;
    std::memcpy(wrong.data() + 28, &from, sizeof from);
    EXPECT_THROW(cache.load(0, wrong, "test"), Error) << from;
  }
  EXPECT_EQ(cache.save(0), saved) << "refused bytes change nothing";
}

// Pages contain the inputs of rope_append.
TEST(KvSaved, HoldsNumbersByHeadAndPosition) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  const KvShape shape{1, 2, 4, KvType::f32, KvType::f16, 100, 1};
  KvCache cache(backend->memory(), backend->layout(), shape);
  feed(*backend, cache, 0, 70, 9);
  const auto saved = numbers(*backend, cache, 0);
  Rows qkv = backend->allocate_rows(70, 24, {});
  Random random(9);
  std::vector<float> input(static_cast<std::size_t>(70 * qkv.value_stride));
  for (float& x : input) x = random.normal();
  const std::byte* keys = saved.data();
  const std::byte* values = keys + 2 * 70 * 4 * sizeof(float);
  for (std::int64_t head = 0; head < 2; ++head) {
    for (std::int64_t t = 0; t < 70; ++t) {
      for (std::int64_t c = 0; c < 4; ++c) {
        const float* row = input.data() + t * qkv.value_stride;
        const auto index = static_cast<std::size_t>((head * 70 + t) * 4 + c);
        float key = 0;
        std::uint16_t value = 0;
        std::memcpy(&key, keys + index * 4, 4);
        std::memcpy(&value, values + index * 2, 2);
        ASSERT_EQ(key, row[8 + head * 4 + c]);
        ASSERT_EQ(value, f32_to_f16(row[16 + head * 4 + c]));
      }
    }
  }
}

// For int8, the codes of a head's page are followed by its scales, then by its minima.
TEST(KvSaved, HoldsCodesScalesAndMinimaByHeadAndPosition) {
  constexpr std::size_t kDims = 6, kHeads = 2;
  const auto backend = make_cpu_backend({1, Isa::portable});
  for (const std::size_t length : {63, 64, 65, 130}) {
    KvCache cache(backend->memory(), backend->layout(),
                  {1, kHeads, kDims, KvType::int8, KvType::int8, 200, 1});
    feed(*backend, cache, 0, static_cast<std::int64_t>(length), 9);
    const auto saved = numbers(*backend, cache, 0);
    const std::size_t of_head = length * (kDims + 4);
    ASSERT_EQ(saved.size(), 2 * kHeads * of_head);
    const Rows shape = backend->allocate_rows(1, 3 * kHeads * kDims, {});
    Random random(9);
    std::vector<float> input(length * static_cast<std::size_t>(shape.value_stride));
    for (float& x : input) x = random.normal();
    for (std::size_t head = 0; head < 2 * kHeads; ++head) {  // first of keys, then of values
      for (std::size_t t = 0; t < length; ++t) {
        const std::size_t first = t / 64 * 64, count = std::min<std::size_t>(64, length - first);
        const std::byte* const page = saved.data() + head * of_head + first * (kDims + 4);
        const std::byte* const codes = page + (t - first) * kDims;
        std::uint16_t scale = 0, minimum = 0;
        std::memcpy(&scale, page + count * kDims + (t - first) * 2, 2);
        std::memcpy(&minimum, page + count * (kDims + 2) + (t - first) * 2, 2);
        const float s = f16_to_f32(scale), m = f16_to_f32(minimum);
        for (std::size_t c = 0; c < kDims; ++c) {
          const float want =
              input[t * static_cast<std::size_t>(shape.value_stride) + (kHeads + head) * kDims + c];
          const auto code = static_cast<float>(codes[c]);
          ASSERT_NEAR(code * s + m, want, 0.51f * s) << "head " << head << " position " << t;
        }
      }
    }
  }
}

// A NaN anywhere is refused, including the first and the last number, scale and minimum.
TEST(KvSaved, RefusesEveryNumberThatIsNotFinite) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  for (const KvType type : kTypes) {
    KvCache cache(backend->memory(), backend->layout(), {1, 2, 4, type, type, 100, 1});
    feed(*backend, cache, 0, 70, 1);
    const auto saved = cache.save(0);
    const bool coded = type == KvType::int8;
    // Two pages of keys, then two of values.
    const std::size_t size = type == KvType::f32 ? 4 : 2, of_page = (saved.size() - kHeader) / 4;
    const std::size_t codes = coded ? std::size_t{2} * 64 * 4 : 0;
    for (std::size_t page = 0; page < 4; ++page) {
      for (std::size_t at = codes; at < of_page; at += size) {
        auto damaged = saved;
        const std::uint32_t nan = size == 4 ? 0x7fc00000u : 0x7e00u;
        std::memcpy(damaged.data() + kHeader + page * of_page + at, &nan, size);
        EXPECT_THROW(cache.load(0, damaged, "test"), Error) << "page " << page << " byte " << at;
      }
      if (!coded) continue;
      auto other = saved;  // every code is valid
      std::memset(other.data() + kHeader + page * of_page, 0xff, codes);
      EXPECT_NO_THROW(cache.load(0, other, "test"));
    }
  }
}

// More f16 copies than a sequence has would be given to the loaded one until none is left.
TEST(KvSaved, RefusesCopiesOfPositionsThatNoQueryReads) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  KvCache cache(backend->memory(), backend->layout(),
                {1, 1, 64, KvType::simq4, KvType::simq4, 4096, 1});
  for (std::uint64_t step = 0; step < 4; ++step) feed(*backend, cache, 0, 512, step);
  auto saved = cache.save(0);
  cache.load(0, saved, "test");
  constexpr std::size_t kCopiesFrom = 24;  // in the header
  std::memset(saved.data() + kCopiesFrom, 0, 4);
  test::expect_error([&] { cache.load(0, saved, "test"); }, {"test: f16 copies from position 0"});
  EXPECT_EQ(cache.length(0), 2048);
}

TEST(KvSaved, RefusesEveryTruncatedPrefixAndForeignShapes) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  const KvShape shape{1, 1, 4, KvType::f16, KvType::int8, 100, 1};
  KvCache cache(backend->memory(), backend->layout(), shape);
  feed(*backend, cache, 0, 5, 1);
  auto saved = cache.save(0);
  for (std::size_t size = 0; size < saved.size(); ++size) {
    EXPECT_THROW(cache.load(0, std::span(saved).first(size), "test"), Error) << size;
  }
  for (KvShape other : {KvShape{2, 1, 4, KvType::f16, KvType::int8, 100, 1},
                        KvShape{1, 2, 4, KvType::f16, KvType::int8, 100, 1},
                        KvShape{1, 1, 6, KvType::f16, KvType::int8, 100, 1},
                        KvShape{1, 1, 4, KvType::f16, KvType::f16, 100, 1},
                        KvShape{1, 1, 4, KvType::f16, KvType::int8, 4, 1}}) {
    KvCache foreign(backend->memory(), backend->layout(), other);
    EXPECT_THROW(foreign.load(0, saved, "test"), Error);
  }
  // A change of any bit of the header must be detected, unless the length has as many pages.
  for (std::size_t bit = 0; bit < kHeader * 8; ++bit) {
    if (bit >= 128 && bit < 134) continue;
    auto flipped = saved;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_THROW(cache.load(0, flipped, "test"), Error) << "bit " << bit;
  }
  const std::uint16_t nan = 0x7e00;
  std::memcpy(saved.data() + kHeader, &nan, 2);
  EXPECT_THROW(cache.load(0, saved, "test"), Error);
  EXPECT_EQ(cache.length(0), 5) << "a refused load changes nothing";
}

}  // namespace
}  // namespace leq
