// Compares the f16 copies of a cache that encodes whole blocks with a naive implementation:
// whatever was forked, truncated, released or restarted, the next query must find exactly what it
// must read, and a sequence must be usable up to the length that it reports.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/layout.h"
#include "base/error.h"
#include "base/random.h"
#include "cache/kv_cache.h"

namespace leq {
namespace {

constexpr std::int64_t kLayers = 2;
constexpr int kDims = 32;

KvShape shape_of(std::int64_t positions, int sequences, KvType type) {
  KvShape shape = {kLayers, 1, kDims, type, type, positions, sequences};
  shape.batch_tokens = 100;
  return shape;
}

std::int64_t copied_pages(const KvCache& cache) {
  return std::ranges::count_if(cache.layer(0).copies, [](std::int32_t copy) { return copy >= 0; });
}

// Simulates a device that writes one number for each position: to the copy when the position is
// appended, to the codes when its block is closed. The numbers depend on the preceding text.
class Copies {
 public:
  Copies(KvCache& cache, int sequences)
      : cache_(cache), texts_(static_cast<std::size_t>(sequences)) {}

  std::vector<float>& text(std::int32_t s) { return texts_[static_cast<std::size_t>(s)]; }

  void append(std::int32_t s, std::int64_t count) {
    const std::int64_t first = cache_.length(s);
    cache_.append(s, count);
    for (std::int64_t i = 0; i < count; ++i) text(s).push_back(next_ += 1.0f);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      for (const bool keys : {true, false}) {
        for (std::int64_t at = first; at < first + count; ++at) {
          *copy(layer, s, at, keys) = number(s, at, layer, keys);
        }
        quantize_blocks(s, layer, keys, cache_.residual().quantized(first),
                        cache_.residual().quantized(first + count));
      }
    }
    cache_.commit();
  }
  void truncate(std::int32_t s, std::int64_t length) {
    const std::int64_t kept = cache_.truncate(s, length);
    ASSERT_TRUE(kept == length || kept == 0);
    text(s).resize(static_cast<std::size_t>(kept));
  }
  void fork(std::int32_t from, std::int32_t to) {
    cache_.fork(from, to);
    text(to) = text(from);
  }

  // Checks everything that the next query reads.
  void check(std::int32_t s) {
    const std::int64_t length = cache_.length(s);
    ASSERT_EQ(length, std::ssize(text(s)));
    const std::int64_t closed = cache_.residual().closed_for(length);
    for (std::int64_t at = 0; at < length; ++at) {
      const bool code = at >= cache_.residual().sinks && at < closed;
      for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        for (const bool keys : {true, false}) {
          const auto page = cache_.pages(s)[static_cast<std::size_t>(at / kPageTokens)];
          const bool copied = cache_.layer(layer).copies[static_cast<std::size_t>(page)] >= 0;
          // A block that the next query closes is first encoded from its copies.
          const bool coded = at < cache_.residual().quantized(length);
          ASSERT_TRUE(code && coded ? true : copied) << "position " << at << " of " << length;
          const float found =
              code && coded ? *stored(layer, s, at, keys) : *copy(layer, s, at, keys);
          ASSERT_EQ(found, number(s, at, layer, keys))
              << "position " << at << " of " << length << (code ? " code" : " copy");
        }
      }
    }
  }

 private:
  float number(std::int32_t s, std::int64_t at, std::int64_t layer, bool keys) {
    const float own = text(s)[static_cast<std::size_t>(at)] + 0.25f * static_cast<float>(layer);
    return keys ? own : -own;
  }
  void quantize_blocks(std::int32_t s, std::int64_t layer, bool keys, std::int64_t first,
                       std::int64_t last) {
    for (std::int64_t at = first; at < last; ++at) {
      const auto page = cache_.pages(s)[static_cast<std::size_t>(at / kPageTokens)];
      if (cache_.layer(layer).copies[static_cast<std::size_t>(page)] < 0) continue;
      *stored(layer, s, at, keys) = *copy(layer, s, at, keys);
    }
  }
  float* stored(std::int64_t layer, std::int32_t s, std::int64_t at, bool keys) const {
    const KvLayer kv = cache_.layer(layer);
    const auto page =
        static_cast<std::size_t>(cache_.pages(s)[static_cast<std::size_t>(at / kPageTokens)]);
    std::byte* start =
        keys ? kv.keys + page * kv.key_page_bytes : kv.values + page * kv.value_page_bytes;
    return reinterpret_cast<float*>(start) + at % kPageTokens;
  }
  float* copy(std::int64_t layer, std::int32_t s, std::int64_t at, bool keys) const {
    const KvLayer kv = cache_.layer(layer);
    const auto page =
        static_cast<std::size_t>(cache_.pages(s)[static_cast<std::size_t>(at / kPageTokens)]);
    const std::int32_t index = kv.copies[page];
    EXPECT_GE(index, 0) << "position " << at;
    std::byte* start = (keys ? kv.key_copies : kv.value_copies) +
                       static_cast<std::size_t>(std::max(index, 0)) * kv.copy_page_bytes;
    return reinterpret_cast<float*>(start) + at % kPageTokens;
  }

  KvCache& cache_;
  std::vector<std::vector<float>> texts_;
  float next_ = 0.0f;
};

TEST(KvCopies, TheNextQueryFindsWhatItReadsThroughRandomOperations) {
  constexpr int kSequences = 3;
  const auto backend = make_cpu_backend({1, Isa::portable});
  int full_runs = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const KvType type = std::array{KvType::simq8, KvType::simq4}[seed / 4 % 2];
    KvShape shape = shape_of(9000, kSequences, type);
    if (seed % 4 == 1) shape.residual = KvResidual{0, 0, kv_scheme(type).block};
    if (seed % 4 == 2) shape.residual = KvResidual{20, 100, kv_scheme(type).block};
    if (seed % 4 == 3) shape.residual = KvResidual{1, 0, kv_scheme(type).block};
    KvCache cache(backend->memory(), backend->layout(), shape);
    ASSERT_LT(cache.copy_count(), cache.page_count()) << "copies are to be taken back";
    Copies copies(cache, kSequences);
    // Pages that were shared, and their text, as in a prefix cache.
    struct Kept {
      std::vector<std::int32_t> pages;
      std::vector<float> text;
    };
    std::vector<Kept> kept;
    Random random(seed);
    bool full = false;
    for (int step = 0; step < 400; ++step) {
      const auto s = static_cast<std::int32_t>(random.below(kSequences));
      const std::uint32_t action = random.below(12);
      const std::int64_t length = cache.length(s);
      if (action < 7) {
        const std::int64_t count = 1 + random.below(action < 2 ? 3 : 100);
        if (length + count < 2500 && cache.free_pages() > 3) copies.append(s, count);
      } else if (action == 7 && cache.free_pages() > 3) {  // a rejected draft can always be undone
        const std::int64_t draft = random.below(65), accepted = random.below(3);
        copies.append(s, draft + accepted);
        copies.truncate(s, length + accepted);
        ASSERT_EQ(cache.length(s), length + accepted);
      } else if (action == 8 && random.below(6) == 0) {
        copies.truncate(s, random.below(static_cast<std::uint32_t>(length) + 1));
      } else if (action == 9) {
        copies.fork(s, static_cast<std::int32_t>(random.below(kSequences)));
      } else if (action == 10 && length > 0) {
        const auto pages = cache.pages(s);
        for (const std::int32_t page : pages) cache.hold(page);
        kept.push_back({{pages.begin(), pages.end()}, copies.text(s)});
        if (kept.size() > 6) {
          for (const std::int32_t page : kept.front().pages) cache.release(page);
          kept.erase(kept.begin());
        }
      } else if (action == 11 && !kept.empty()) {
        const Kept& one = kept[random.below(static_cast<std::uint32_t>(kept.size()))];
        const std::int64_t most = std::ssize(one.text);
        const std::int64_t wanted = most - random.below(static_cast<std::uint32_t>(most));
        const auto within = [&](std::int64_t positions) {
          return std::span(one.pages).first(
              static_cast<std::size_t>((positions + kPageTokens - 1) / kPageTokens));
        };
        const std::int64_t reach = cache.reach(within(wanted), wanted);
        ASSERT_LE(reach, wanted);
        cache.clear(s);
        cache.adopt(s, within(reach), reach);
        copies.text(s).assign(one.text.begin(), one.text.begin() + reach);
      }
      for (std::int32_t i = 0; i < kSequences; ++i) copies.check(i);
      full = full || copied_pages(cache) == cache.copy_count();
      if (HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
    }
    full_runs += full ? 1 : 0;
    for (std::int32_t i = 0; i < kSequences; ++i) cache.clear(i);
    for (const Kept& one : kept) {
      for (const std::int32_t page : one.pages) cache.release(page);
    }
    EXPECT_EQ(cache.free_pages(), cache.page_count());
    EXPECT_EQ(copied_pages(cache), 0);
  }
  EXPECT_GE(full_runs, 8) << "copies were to be given up";
}

TEST(KvCopies, TheNewestPositionsCanBeTakenBack) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  KvCache cache(backend->memory(), backend->layout(), shape_of(4096, 1, KvType::simq4));
  Copies copies(cache, 1);
  for (int i = 0; i < 30; ++i) copies.append(0, 100);
  for (const std::int64_t drop : {1, 16, 64, 400}) {
    const std::int64_t length = cache.length(0);
    copies.truncate(0, length - drop);
    EXPECT_EQ(cache.length(0), length - drop);
    copies.check(0);
    copies.append(0, 7);
    copies.check(0);
  }
  EXPECT_EQ(cache.truncate(0, 200), 0) << "f16 copies of the 200th are long gone";
  EXPECT_EQ(cache.length(0), 0);
}

// Positions that replace as many truncated ones in one step are quantized again.
TEST(KvCopies, WhatReplacesPositionsIsQuantizedToo) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  KvCache cache(backend->memory(), backend->layout(), shape_of(4096, 1, KvType::simq4));
  Copies copies(cache, 1);
  for (int i = 0; i < 20; ++i) copies.append(0, 100);
  copies.truncate(0, 1600);
  ASSERT_EQ(cache.length(0), 1600);
  copies.append(0, 400);
  for (int i = 0; i < 15; ++i) copies.append(0, 100);
  copies.check(0);
  EXPECT_EQ(cache.reach(cache.pages(0), 3500), 3500);
}

// A cache has whole pages of codes, and for each sequence f16 copies of the newest R + B + 512
// positions and of the current step. Sizes are checked to the byte.
TEST(KvCopies, BytesFollowTheFormula) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  const auto& layout = backend->layout();
  const std::size_t codes = 64 * kDims / 2;
  EXPECT_EQ(layout.page_bytes(KvPart::keys, KvType::simq4, 3, kDims),
            3 * (codes + 2 * 2 * kDims * 2));
  EXPECT_EQ(layout.page_bytes(KvPart::values, KvType::simq4, 3, kDims), 3 * (codes + 2 * 64 * 2));
  EXPECT_EQ(layout.page_bytes(KvPart::values, KvType::simq2, 1, 80),
            std::size_t{64 * 80 / 4 + 2 * 64 * 3 * 2});
  EXPECT_EQ(layout.page_bytes(KvPart::values, KvType::simq2, 1, 22),
            std::size_t{64 * 32 / 4 + 2 * 64 * 2});
  EXPECT_EQ(layout.page_bytes(KvPart::keys, KvType::int4, 1, 80),
            std::size_t{64 * 80 / 2 + 2 * 64 * 2});
  const KvShape shape = shape_of(6400, 2, KvType::simq4);
  CountingMemory counting(layout);
  const KvCache cache(counting, layout, shape);
  const std::size_t page = layout.page_bytes(KvPart::keys, KvType::simq4, 1, kDims) +
                           layout.page_bytes(KvPart::values, KvType::simq4, 1, kDims);
  const std::size_t copy = layout.page_bytes(KvPart::keys, KvType::f16, 1, kDims);
  EXPECT_EQ(cache.copy_count(), 2 * (9 + 3) + 2);  // ceil(576 / 64) + 3 each, ceil(100 / 64)
  EXPECT_EQ(counting.allocated(),
            kLayers * (101 * page + 2 * static_cast<std::size_t>(cache.copy_count()) * copy));
}

TEST(KvCopies, APageIsReplacedByOneThatHasAllOfIt) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  KvCache cache(backend->memory(), backend->layout(), shape_of(4096, 2, KvType::simq4));
  Copies copies(cache, 2);
  copies.append(0, 64);  // one block is encoded
  const std::int32_t early = cache.pages(0)[0];
  cache.hold(early);
  copies.append(1, 64);
  copies.text(1) = copies.text(0);
  // Sequence 1 gets the bytes of sequence 0; continuing it then encodes both blocks of the page.
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const KvLayer kv = cache.layer(layer);
    const auto from = static_cast<std::size_t>(early),
               to = static_cast<std::size_t>(cache.pages(1)[0]);
    for (const auto& [bytes, size, a, b] :
         {std::tuple{kv.key_copies, kv.copy_page_bytes, kv.copies[from], kv.copies[to]},
          std::tuple{kv.value_copies, kv.copy_page_bytes, kv.copies[from], kv.copies[to]}}) {
      std::copy_n(bytes + static_cast<std::size_t>(a) * size, size,
                  bytes + static_cast<std::size_t>(b) * size);
    }
    std::copy_n(kv.keys + from * kv.key_page_bytes, kv.key_page_bytes,
                kv.keys + to * kv.key_page_bytes);
    std::copy_n(kv.values + from * kv.value_page_bytes, kv.value_page_bytes,
                kv.values + to * kv.value_page_bytes);
  }
  copies.append(1, 50);
  copies.check(1);
  cache.replace_page(1, 0, early);
  EXPECT_EQ(cache.pages(1)[0], early);
  copies.check(1);
  cache.release(early);
}

}  // namespace
}  // namespace leq
