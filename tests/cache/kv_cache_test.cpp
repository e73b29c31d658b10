// Compares the cache's pages with a simple model in which each sequence is a list of numbers: reads
// must return what was written for a position, whatever was forked, truncated or cleared since.
#include "cache/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "backend/layout.h"
#include "base/error.h"
#include "base/random.h"
#include "errors.h"

namespace leq {
namespace {

constexpr std::int64_t kLayers = 3;

KvShape shape_of(std::int64_t positions, int sequences, std::int64_t window = 0,
                 std::vector<bool> layer_windowed = {}) {
  KvShape shape = {kLayers, 1, 2, KvType::f32, KvType::f32, positions, sequences};
  shape.window = window;
  shape.layer_windowed = std::move(layer_windowed);
  shape.batch_tokens = 150;
  return shape;
}

// A number for each of a page's 64 positions is stored in the page's first floats.
float* slot(const KvCache& cache, std::int64_t layer, std::int32_t sequence, std::int64_t position,
            bool keys) {
  const KvLayer kv = cache.layer(layer);
  const auto page = static_cast<std::size_t>(
      kv.place(cache.pages(sequence)[static_cast<std::size_t>(position / kPageTokens)]));
  std::byte* start =
      keys ? kv.keys + page * kv.key_page_bytes : kv.values + page * kv.value_page_bytes;
  return reinterpret_cast<float*>(start) + position % kPageTokens;
}

class Sequences {
 public:
  Sequences(KvCache& cache, int count)
      : cache_(cache),
        numbers_(static_cast<std::size_t>(count)),
        longest_(static_cast<std::size_t>(count), 0) {}

  void append(std::int32_t sequence, std::int64_t count) {
    cache_.append(sequence, count);
    auto& mine = at(sequence);
    for (std::int64_t i = 0; i < count; ++i) {
      mine.push_back(next_);
      next_ += 1.0f;
      const std::int64_t position = std::ssize(mine) - 1;
      for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        *slot(cache_, layer, sequence, position, true) =
            mine.back() + 0.25f * static_cast<float>(layer);
        *slot(cache_, layer, sequence, position, false) =
            -mine.back() - 0.25f * static_cast<float>(layer);
      }
    }
    cache_.commit();
    longest(sequence) = std::max(longest(sequence), std::ssize(mine));
  }
  void truncate(std::int32_t sequence, std::int64_t length) {
    const std::int64_t kept = cache_.truncate(sequence, length);
    const bool near = longest(sequence) - length <= KvCache::kRewind;
    ASSERT_TRUE(kept == length || (kept == 0 && window() > 0 && !near)) << "kept " << kept;
    at(sequence).resize(static_cast<std::size_t>(kept));
    if (kept == 0) longest(sequence) = 0;
  }
  void fork(std::int32_t from, std::int32_t to) {
    cache_.fork(from, to);
    at(to) = at(from);
    longest(to) = longest(from);
  }
  std::int64_t length(std::int32_t sequence) { return std::ssize(at(sequence)); }
  // Begins the sequence with pages of another text.
  void adopt(std::int32_t sequence, std::span<const std::int32_t> pages,
             const std::vector<float>& text, std::int64_t wanted) {
    const auto within = [&](std::int64_t positions) {
      return pages.first(static_cast<std::size_t>(pages_for(positions)));
    };
    const std::int64_t reach = cache_.reach(within(wanted), wanted);
    ASSERT_LE(reach, wanted);
    cache_.clear(sequence);
    cache_.adopt(sequence, within(reach), reach);
    at(sequence).assign(text.begin(), text.begin() + reach);
    longest(sequence) = reach + KvCache::kRewind;  // only this much is guaranteed
  }
  std::vector<float>& at(std::int32_t sequence) {
    return numbers_[static_cast<std::size_t>(sequence)];
  }

  void check(std::int64_t all_pages) {
    std::set<std::int32_t> used;
    for (std::size_t s = 0; s < numbers_.size(); ++s) {
      const auto sequence = static_cast<std::int32_t>(s);
      ASSERT_EQ(cache_.length(sequence), std::ssize(numbers_[s]));
      const auto pages = cache_.pages(sequence);
      ASSERT_EQ(std::ssize(pages), (std::ssize(numbers_[s]) + kPageTokens - 1) / kPageTokens);
      used.insert(pages.begin(), pages.end());
      const std::int64_t length = std::ssize(numbers_[s]);
      // The first position that the next query reads in layers with a window.
      const std::int64_t seen = std::max<std::int64_t>(0, length + 1 - window());
      for (std::int64_t position = 0; position < length; ++position) {
        const float want = numbers_[s][static_cast<std::size_t>(position)];
        for (std::int64_t layer = 0; layer < kLayers; ++layer) {
          if (cache_.shape().windowed(layer) && position < seen) continue;
          ASSERT_EQ(*slot(cache_, layer, sequence, position, true),
                    want + 0.25f * static_cast<float>(layer))
              << "sequence " << s << " position " << position << " layer " << layer;
          ASSERT_EQ(*slot(cache_, layer, sequence, position, false),
                    -want - 0.25f * static_cast<float>(layer));
        }
      }
    }
    ASSERT_EQ(std::ssize(used) + cache_.free_pages(), all_pages);
  }

 private:
  std::int64_t window() const { return cache_.shape().window; }
  // The number of positions that the sequence has had since it was last empty.
  std::int64_t& longest(std::int32_t sequence) {
    return longest_[static_cast<std::size_t>(sequence)];
  }

  KvCache& cache_;
  std::vector<std::vector<float>> numbers_;
  std::vector<std::int64_t> longest_;
  float next_ = 1.0f;
};

TEST(KvCache, KeepsEverySequenceThroughRandomOperations) {
  constexpr int kSequences = 4;
  const auto backend = make_cpu_backend({1, Isa::portable});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    KvCache cache(backend->memory(), backend->layout(), shape_of(1000, kSequences));
    const std::int64_t all_pages = cache.free_pages();
    Sequences sequences(cache, kSequences);
    Random random(seed);
    for (int step = 0; step < 120; ++step) {
      const auto s = static_cast<std::int32_t>(random.below(kSequences));
      const auto other = static_cast<std::int32_t>(random.below(kSequences));
      const std::uint32_t action = random.below(10);
      if (action < 6) {
        const std::int64_t count = random.below(action < 3 ? 3 : 150);
        const std::int64_t before = cache.free_pages();
        try {
          sequences.append(s, count);
        } catch (const Error&) {  // full; nothing may have changed
          ASSERT_EQ(cache.free_pages(), before);
        }
      } else if (action < 8) {
        const auto length = static_cast<std::uint32_t>(sequences.length(s));
        sequences.truncate(s, random.below(length + 1));
      } else {
        sequences.fork(s, other);
      }
      sequences.check(all_pages);
      if (HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
    }
    for (std::int32_t s = 0; s < kSequences; ++s) sequences.truncate(s, 0);
    EXPECT_EQ(cache.free_pages(), all_pages);
  }
}

// Slots of pages before a window are given to other pages, all others are kept. Pages that the test
// still references can begin another sequence, as far as reach() allows.
TEST(KvCache, KeepsWhatAWindowSeesThroughRandomOperations) {
  constexpr int kSequences = 3;
  const auto backend = make_cpu_backend({1, Isa::portable});
  struct Kept {
    std::vector<std::int32_t> pages;
    std::vector<float> text;
  };
  std::int64_t beyond = 0, adopted_behind = 0;
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    const std::int64_t window = std::array{1, 64, 100, 700}[seed % 4];
    const std::vector<bool> of_layers =
        seed % 3 == 0 ? std::vector<bool>() : std::vector{seed % 3 == 1, false, true};
    KvCache cache(backend->memory(), backend->layout(),
                  shape_of(30000, kSequences, window, of_layers));
    ASSERT_LT(cache.frame_count(), 30000 / kPageTokens / 4) << "windows make the cache smaller";
    const std::int64_t all_pages = cache.free_pages();
    Sequences sequences(cache, kSequences);
    std::optional<Kept> kept;
    const auto forget = [&] {
      for (const std::int32_t page : kept ? kept->pages : std::vector<std::int32_t>()) {
        cache.release(page);
      }
      kept.reset();
    };
    Random random(seed);
    for (int step = 0; step < 300; ++step) {
      const auto s = static_cast<std::int32_t>(random.below(kSequences));
      const auto other = static_cast<std::int32_t>(random.below(kSequences));
      const std::uint32_t action = random.below(16);
      const std::int64_t length = sequences.length(s);
      if (action < 9) {
        const std::int64_t count = 1 + random.below(action < 3 ? 3 : 150);
        if (kept && cache.free_pages() < cache.pages_to_append(s, count)) forget();
        sequences.append(s, count);  // always fits, unless other references hold pages
      } else if (action < 12) {
        sequences.truncate(s, length - std::min<std::int64_t>(length, random.below(80)));
      } else if (action == 12 && random.below(4) == 0) {
        sequences.truncate(s, random.below(static_cast<std::uint32_t>(length) + 1));
      } else if (action == 13) {
        sequences.fork(s, other);
      } else if (action == 14) {
        forget();
        const auto pages = cache.pages(s);
        kept = Kept{{pages.begin(), pages.end()}, sequences.at(s)};
        for (const std::int32_t page : pages) cache.hold(page);
      } else if (kept && !kept->text.empty()) {
        const auto most = static_cast<std::uint32_t>(kept->text.size());
        const auto frames = cache.layers().frames;
        sequences.adopt(s, kept->pages, kept->text, most - random.below(most));
        adopted_behind +=
            sequences.length(s) > 0 && frames[static_cast<std::size_t>(kept->pages[0])] < 0 ? 1 : 0;
      }
      beyond = std::max(beyond, cache.length(s));
      const std::int64_t held =
          kept ? std::ranges::count_if(kept->pages,
                                       [&](auto page) { return cache.holders(page) == 1; })
               : 0;
      sequences.check(all_pages - held);
      if (HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
    }
    forget();
    for (std::int32_t s = 0; s < kSequences; ++s) sequences.truncate(s, 0);
    EXPECT_EQ(cache.free_pages(), all_pages);
  }
  EXPECT_GT(beyond, 1400);
  EXPECT_GT(adopted_behind, 5);
}

TEST(KvCache, TheWindowAtAPromptsEndIsKeptLonger) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  for (const bool kept : {false, true}) {
    KvCache cache(backend->memory(), backend->layout(),
                  shape_of(9000, 1, 100, {true, false, true}));
    const auto append = [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        cache.append(0, 150);
        cache.commit();
      }
    };
    append(2);
    if (kept) cache.keep_window(0);
    append(30);
    const auto reach = [&](std::int64_t length) {
      const auto pages = cache.pages(0).first(static_cast<std::size_t>(pages_for(length)));
      return cache.reach(pages, length);
    };
    EXPECT_EQ(reach(300), kept ? 300 : 0);
    EXPECT_EQ(reach(260), kept ? 260 : 0) << "a few tokens before the end";
    EXPECT_EQ(reach(200), 0);
    EXPECT_EQ(reach(cache.length(0)), cache.length(0));
  }
}

// As docs/kv-cache.md says. A page of one layer's keys has 64 x 2 f32 numbers.
TEST(KvCache, LayersWithWindowsTakeTheBytesOfTheirSlots) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  constexpr std::uint64_t kPageBytes = 64 * 2 * 4;
  const auto bytes = [&](std::int64_t positions, std::vector<bool> of_layers) {
    CountingMemory memory(backend->layout());
    const KvPages pages(memory, backend->layout(), shape_of(positions, 2, 100, of_layers));
    return memory.allocated();
  };
  const std::uint64_t frames = 2 * (10 + 3) + 3 + 4, pages = 9000 / 64 + 1 + 1;
  EXPECT_EQ(bytes(9000, {true, false, true}), 2 * kPageBytes * (pages + 2 * frames));
  EXPECT_EQ(bytes(9000, {}), 2 * kPageBytes * 3 * frames);
  EXPECT_EQ(bytes(500, {true, false, true}), 2 * kPageBytes * 3 * (8 + 1)) << "one frame per page";
}

TEST(KvCache, HoldsTheWholeContextHoweverItIsShared) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  for (const std::int64_t positions : {1, 63, 64, 65, 1000}) {
    KvCache cache(backend->memory(), backend->layout(), shape_of(positions, 3));
    const std::int64_t third = positions / 3;
    cache.append(0, third);
    cache.append(1, third);
    cache.append(2, positions - 2 * third);
    EXPECT_EQ(cache.length(0) + cache.length(1) + cache.length(2), positions);
  }
}

TEST(KvCache, AFullContextNamesTheSizes) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  KvCache cache(backend->memory(), backend->layout(), shape_of(128, 1));
  cache.append(0, 100);
  test::expect_error([&] { cache.append(0, 29); }, {"context full", "100", "29"});
  EXPECT_EQ(cache.length(0), 100);
  cache.append(0, 28);
  EXPECT_EQ(cache.length(0), 128);
}

TEST(KvCache, RefusesSequencesAndLengthsThatAreNotThere) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  KvCache cache(backend->memory(), backend->layout(), shape_of(128, 2));
  cache.append(1, 10);
  EXPECT_THROW(cache.append(2, 1), Error);
  EXPECT_THROW(cache.append(-1, 1), Error);
  EXPECT_THROW((void)cache.truncate(1, 11), Error);
  EXPECT_THROW((void)cache.truncate(1, -1), Error);
  EXPECT_THROW(cache.fork(0, 2), Error);
  EXPECT_EQ(cache.length(1), 10);
}

TEST(KvCache, RepeatsItsOwnPagesInTurn) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  KvCache cache(backend->memory(), backend->layout(), shape_of(512, 2));
  Sequences sequences(cache, 2);
  sequences.append(0, 128);
  cache.repeat_pages(0, 300);
  EXPECT_EQ(cache.length(0), 300);
  const auto pages = cache.pages(0);
  EXPECT_EQ(std::set<std::int32_t>(pages.begin(), pages.end()).size(), 5u);  // all distinct
  for (std::int64_t position = 128; position < 300; ++position) {
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      for (const bool keys : {true, false}) {
        ASSERT_EQ(*slot(cache, layer, 0, position, keys),
                  *slot(cache, layer, 0, position % 128, keys));
      }
    }
  }
  cache.append(1, 10);
  EXPECT_THROW(cache.repeat_pages(1, 64), Error);   // ends within a page
  EXPECT_THROW(cache.repeat_pages(0, 256), Error);  // has more positions
  cache.clear(1);
  EXPECT_THROW(cache.repeat_pages(1, 64), Error);  // nothing to repeat
}

TEST(KvCache, BytesAreWhatIsAskedFor) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  for (const KvType keys : {KvType::f32, KvType::f16, KvType::int8}) {
    for (const KvType values : {KvType::f32, KvType::f16, KvType::int8}) {
      for (const int dim : {20, 22, 64, 128}) {
        const KvShape shape{5, 3, dim, keys, values, 700, 2};
        const std::size_t before = backend->memory().allocated();
        const KvCache cache(backend->memory(), backend->layout(), shape);
        CountingMemory counting(backend->layout());
        const KvCache counted(counting, backend->layout(), shape);
        EXPECT_EQ(backend->memory().allocated() - before, counting.allocated());
        // The positions fill 11 pages; the second sequence needs one more, partially filled page.
        const std::size_t page = backend->layout().page_bytes(KvPart::keys, keys, 3, dim) +
                                 backend->layout().page_bytes(KvPart::values, values, 3, dim);
        EXPECT_EQ(counting.allocated(), 5u * 12 * page);
      }
    }
  }
}

// By docs/kv-cache.md: 64 positions of all kv heads; each int8 row adds an f16 scale and minimum.
TEST(KvCache, PageBytesFollowTheLayout) {
  const auto backend = make_cpu_backend({1, Isa::portable});
  EXPECT_EQ(backend->layout().page_bytes(KvPart::keys, KvType::f32, 3, 22), 3u * 64 * 22 * 4);
  EXPECT_EQ(backend->layout().page_bytes(KvPart::keys, KvType::f16, 3, 22), 3u * 64 * 22 * 2);
  EXPECT_EQ(backend->layout().page_bytes(KvPart::keys, KvType::int8, 3, 22),
            3u * (64 * 24 + 64 * 2 * 2));
  EXPECT_EQ(backend->layout().page_bytes(KvPart::values, KvType::int8, 3, 22),
            3u * (64 * 22 + 64 * 2 * 2));
  EXPECT_EQ(backend->layout().page_bytes(KvPart::values, KvType::f32, 1, 64), 64u * 64 * 4);
}

}  // namespace
}  // namespace leq
