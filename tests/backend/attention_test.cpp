// Attention over the paged cache agrees with double and with the documented order of operations,
// and is bit-identical for every instruction set, thread count, chunk and batch.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/attention_oracle.h"
#include "backend/attention_run.h"
#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/kernels/kernels.h"
#include "base/cpu_features.h"
#include "base/error.h"
#include "errors.h"

namespace leq::test {
namespace {

// Tolerances against double. f32: sums of up to 700 values of size 5, with angles up to 700 rad
// whose f32 product is off by 700 * 2^-24 = 4e-5. f16: keys and values are off by 2^-11 relatively.
// int8: values, queries and keys of 32 to 256 dimensions are off by half a step of about 10/255.
constexpr double kTolerance[] = {4e-4, 8e-3, 0.25};

constexpr KvType kTypes[] = {KvType::f32, KvType::f16, KvType::int8};

std::string describe(const AttentionCase& c) {
  return std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) + " heads of " +
         std::to_string(c.head_dim) + " window " + std::to_string(c.window) + " " +
         std::string(kv_type_name(c.key_type)) + " " + std::string(kv_type_name(c.value_type));
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> all;
  for (const float v : values) all.push_back(std::bit_cast<std::uint32_t>(v));
  return all;
}

void expect_near_double(const AttentionCase& c, const AttentionRun& run, std::int64_t length,
                        std::int64_t step) {
  const NaiveAttention naive(c, 0, length);
  const double tolerance =
      kTolerance[std::max(static_cast<int>(c.key_type), static_cast<int>(c.value_type))];
  for (std::int64_t t = 0; t < length;
       t = t + step < length || t == length - 1 ? t + step : length - 1) {
    for (int h = 0; h < c.heads; ++h) {
      const auto want = naive.output(t, h);
      for (int i = 0; i < c.head_dim; ++i) {
        const float have =
            run.values(0)[static_cast<std::size_t>((t * c.heads + h) * c.head_dim + i)];
        ASSERT_NEAR(have, want[static_cast<std::size_t>(i)], tolerance)
            << describe(c) << " position " << t << " head " << h << " dimension " << i;
      }
    }
  }
}

TEST(Attention, AgreesWithDoubleForEveryShapeAndType) {
  const Isa best = supported_isas().back();
  for (const int dim : {20, 22, 32, 64, 80, 96, 128, 256}) {
    for (const int group : {1, 2, 5}) {
      for (const KvType type : kTypes) {
        AttentionCase c;
        c.heads = 2 * group;
        c.head_dim = dim;
        c.key_type = c.value_type = type;
        c.window = group == 2 ? 50 : 0;
        c.head_norms = dim == 128;
        c.rotary = dim != 64;
        AttentionRun run(c, {2, best}, 90);
        run.run(in_chunks(90, 90));
        expect_near_double(c, run, 90, 13);
      }
    }
  }
}

TEST(Attention, AgreesWithDoubleOverSpans) {
  for (const KvType type : kTypes) {
    for (const int window : {0, 300}) {
      AttentionCase c;
      c.key_type = c.value_type = type;
      c.window = window;
      AttentionRun run(c, {2, supported_isas().back()}, 700);
      run.run(in_chunks(700, 700));
      expect_near_double(c, run, 700, 97);
    }
  }
}

void expect_one_result(const AttentionCase& c, std::int64_t length,
                       const std::vector<std::int64_t>& chunks);

TEST(Attention, OfTemperedQueriesAgreesWithDoubleAndHasTheSameBits) {
  for (const KvType type : {KvType::f16, KvType::int8}) {
    AttentionCase c;
    c.key_type = c.value_type = type;
    c.query_period = 48;
    AttentionRun run(c, {2, supported_isas().back()}, 300);
    run.run(in_chunks(300, 300));
    expect_near_double(c, run, 300, 23);
    if (supported_isas().size() > 1) expect_one_result(c, 300, {7, 48, 64, 300});
  }
}

TEST(Attention, FollowsTheWrittenOrderBitForBit) {
  for (const KvType keys : kTypes) {
    for (const KvType values : kTypes) {
      for (const int window : {0, 530}) {
        AttentionCase c;
        c.key_type = keys;
        c.value_type = values;
        c.window = window;
        c.head_dim = 22;
        AttentionRun run(c, {1, Isa::portable}, 1100);
        run.run(in_chunks(1100, 400));
        const SpanAttention written(c, run, 0);
        for (const std::int64_t t : {0, 1, 15, 16, 63, 64, 511, 512, 513, 700, 1023, 1024, 1099}) {
          for (int h = 0; h < c.heads; ++h) {
            const auto want = written.output(t, h);
            const float* have = run.values(0).data() + (t * c.heads + h) * c.head_dim;
            ASSERT_EQ(bits(want), bits({have, have + c.head_dim}))
                << describe(c) << " position " << t << " head " << h;
          }
        }
      }
    }
  }
}

// The rotary table is filled on demand in pieces of 64 rows: the chunks fill it by single rows, by
// one row more than a piece, and across two pieces.
TEST(Attention, AgreesWithDoubleHoweverTheTableIsFilled) {
  for (const std::int64_t chunk : {1, 64, 65, 129}) {
    AttentionCase c;
    c.heads = c.kv_heads = 1;
    c.head_dim = 8;
    AttentionRun run(c, {2, supported_isas().back()}, chunk);
    run.run(in_chunks(195, chunk));
    expect_near_double(c, run, 195, 1);
  }
}

// The scratch reserved for a batch is enough for every smaller batch, also for one whose rows are
// split by spans, up to the end of the context.
TEST(Attention, ScratchForABatchIsEnoughForSmallerOnes) {
  for (const int threads : {1, 2, 3, 8}) {
    for (const int kv_heads : {1, 2, 3, 5, 8}) {
      for (const int head_dim : {4, 128}) {
        for (const std::int64_t context : {512, 513, 20000}) {
          const AttentionShape shape{kv_heads, kv_heads, head_dim, 0, nullptr, nullptr, false};
          for (const std::int64_t largest : {1, 30, 31, 32, 33, 64, 200}) {
            const std::size_t reserved =
                cpu::attention_scratch_bytes(threads, largest, shape, context);
            for (std::int64_t rows = 1; rows <= largest; ++rows) {
              ASSERT_LE(cpu::plan_attention(threads, rows, shape, context).bytes(), reserved)
                  << threads << " threads, " << kv_heads << " kv heads of " << head_dim << ", "
                  << rows << " of " << largest << " rows, context " << context;
            }
          }
        }
      }
    }
  }
}

// The oldest visible key is at some time the first or the last of a block, a page or a span, since
// windows begin at every position of two spans. With one row at a time each row is a block of its
// own; with chunks, blocks begin anywhere.
TEST(Attention, WindowsBeginAtEveryPositionOfASpan) {
  constexpr std::int64_t kLength = 1100;
  const Isa isa = supported_isas().back();
  for (const auto& [keys, values] :
       {std::pair{KvType::f32, KvType::f32}, std::pair{KvType::f16, KvType::int8},
        std::pair{KvType::int8, KvType::f16}}) {
    for (const int window : {1, 70, 513}) {
      for (const std::int64_t chunk : {1, 5, 64}) {
        AttentionCase c;
        c.heads = c.kv_heads = 1;
        c.head_dim = 8;
        c.key_type = keys;
        c.value_type = values;
        c.window = window;
        AttentionRun run(c, {2, isa}, chunk);
        run.run(in_chunks(kLength, chunk));
        const SpanAttention written(c, run, 0);
        for (std::int64_t t = 0; t < kLength; ++t) {
          const float* have = run.values(0).data() + t * c.head_dim;
          ASSERT_EQ(bits(written.output(t, 0)), bits({have, have + c.head_dim}))
              << describe(c) << " position " << t << ", chunks of " << chunk;
        }
      }
    }
  }
}

// Checks that all ways to split one sequence give the same bits, for one case of the grid below.
void expect_one_result(const AttentionCase& c, std::int64_t length,
                       const std::vector<std::int64_t>& chunks) {
  // supported_isas()[1] runs the portable kernels with hardware fma, on x86-64 and on aarch64.
  AttentionRun first(c, {1, supported_isas()[1]}, length);
  first.run(in_chunks(length, length));
  const auto want = bits(first.values(0));
  ASSERT_EQ(want.size(), static_cast<std::size_t>(length * c.width()));
  for (const float v : first.values(0)) ASSERT_TRUE(std::isfinite(v)) << describe(c);
  std::set<const cpu::AttentionKernels*> seen;  // levels of aarch64 share kernels
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::portable)
      continue;  // slow, and the same source as the second level, which is compared below
    if (!seen.insert(&cpu::attention_kernels(isa)).second) continue;
    for (const int threads : {1, 2, 4}) {
      const Fetch fetch = threads == 2 ? Fetch::twice : Fetch::never;
      for (const std::int64_t chunk : chunks) {
        AttentionRun run(c, {.threads = threads, .isa = isa, .fetch = fetch},
                         std::min(chunk, length));
        run.run(in_chunks(length, chunk));
        ASSERT_EQ(want, bits(run.values(0))) << describe(c) << " " << isa_name(isa) << " "
                                             << threads << " threads, chunks of " << chunk;
      }
    }
  }
}

TEST(Attention, SameBitsForEveryIsaThreadCountAndChunk) {
  if (supported_isas().size() < 2) GTEST_SKIP() << "one instruction set alone";
  for (const KvType keys : kTypes) {
    for (const KvType values : kTypes) {
      AttentionCase c;
      c.heads = 6;
      c.kv_heads = 2;
      c.head_dim = 20;
      c.key_type = keys;
      c.value_type = values;
      c.window = keys == values ? 0 : 550;
      expect_one_result(c, 620, {7, 64, 512, 620});
    }
  }
}

TEST(Attention, SameBitsForEveryHeadSizeAndGroup) {
  if (supported_isas().size() < 2) GTEST_SKIP() << "one instruction set alone";
  constexpr int kGroups[] = {1, 4, 8};
  std::size_t first = 0;  // every two of head size, group and type meet
  for (const int dim : {32, 64, 80, 96, 128, 256}) {
    std::size_t next = first++;
    for (const KvType type : kTypes) {
      AttentionCase c;
      c.heads = kGroups[next++ % 3];
      c.kv_heads = 1;
      c.head_dim = dim;
      c.key_type = c.value_type = type;
      c.head_norms = c.heads == 4;
      expect_one_result(c, 70, {9, 70});
    }
  }
}

TEST(Attention, BaselineBuildOfThePortableKernelsAgrees) {
  for (const KvType type : kTypes) {
    AttentionCase c;
    c.key_type = c.value_type = type;
    c.window = 100;
    AttentionRun baseline(c, {2, Isa::portable}, 520), best(c, {2, supported_isas().back()}, 520);
    baseline.run(in_chunks(520, 130));
    best.run(in_chunks(520, 520));
    ASSERT_EQ(bits(baseline.values(0)), bits(best.values(0))) << describe(c);
  }
}

// When decoding at depth, the work for one row is split by spans.
TEST(Attention, OneByOneGivesTheBitsOfOneChunk) {
  for (const KvType type : kTypes) {
    for (const int window : {0, 700}) {
      AttentionCase c;
      c.heads = 4;
      c.kv_heads = 1;
      c.key_type = c.value_type = type;
      c.window = window;
      const Isa isa = supported_isas().back();
      AttentionRun whole(c, {1, isa}, 1700), steps(c, {4, isa}, 512);
      whole.run(in_chunks(1700, 1700));
      Schedule schedule = in_chunks(1500, 500);
      for (int i = 0; i < 200; ++i) schedule.push_back({{0, 1}});
      steps.run(schedule);
      ASSERT_EQ(bits(whole.values(0)), bits(steps.values(0))) << describe(c);
    }
  }
}

// 32 spans are computed at a time, so a row beyond 16,384 positions needs a second wave.
TEST(Attention, WavesOfSpansAreJoinedInTheWrittenOrder) {
  constexpr std::int64_t kFed = 16382, kSteps = 5;
  AttentionCase c;
  c.heads = 2;
  c.kv_heads = 1;
  c.head_dim = 4;
  c.context = 17408;  // 34 spans
  for (const int threads : {1, 4}) {
    AttentionRun run(c, {threads, supported_isas().back()}, 512);
    run.run(in_chunks(kFed, 512));
    for (const std::int64_t more : {kSteps, std::int64_t{600}, kSteps}) {
      const std::int64_t chunk = more == kSteps ? 1 : 300;
      run.run(in_chunks(more, chunk));
      const std::int64_t end = std::ssize(run.values(0)) / c.width();
      const SpanAttention written(c, run, 0);
      for (std::int64_t t = end - kSteps; t < end; ++t) {
        for (int h = 0; h < c.heads; ++h) {
          const float* have = run.values(0).data() + (t * c.heads + h) * c.head_dim;
          ASSERT_EQ(bits(written.output(t, h)), bits({have, have + c.head_dim}))
              << "position " << t << " head " << h << ", " << threads << " threads";
        }
      }
    }
  }
}

// For a single row, several of the 11 kv heads are read at a time; for a prompt, one at a time.
TEST(Attention, HeadsReadTogetherGiveTheSameBits) {
  const Isa isa = supported_isas().back();
  for (const KvType type : kTypes) {
    for (const ActKind act : {ActKind::none, ActKind::g128}) {
      AttentionCase c;
      c.heads = c.kv_heads = 11;
      c.head_dim = 64;
      c.key_type = c.value_type = type;
      c.output = {act == ActKind::none, act, act == ActKind::g128, 0};
      AttentionRun whole(c, {2, isa}, 1100);
      whole.run(in_chunks(1100, 1100));
      for (const int threads : {1, 2, 4}) {
        AttentionRun steps(c, {threads, isa}, 1080);
        Schedule schedule = in_chunks(1080, 1080);
        for (int i = 0; i < 20; ++i) schedule.push_back({{0, 1}});
        steps.run(schedule);
        ASSERT_EQ(bits(whole.values(0)), bits(steps.values(0))) << describe(c) << " " << threads;
        ASSERT_EQ(whole.codes(0), steps.codes(0)) << describe(c) << " " << threads << " threads";
        ASSERT_EQ(bits(whole.scales(0)), bits(steps.scales(0))) << describe(c) << " " << threads;
      }
    }
  }
}

TEST(Attention, BatchCompositionChangesNothing) {
  for (const KvType type : kTypes) {
    AttentionCase c;
    c.heads = 5;
    c.kv_heads = 1;
    c.key_type = c.value_type = type;
    const Isa isa = supported_isas().back();
    AttentionRun alone(c, {2, isa}, 600), mixed(c, {2, isa}, 600);
    alone.run({{{0, 560}}, {{1, 90}}, {{2, 33}}});
    mixed.run(
        {{{1, 30}, {0, 400}}, {{0, 1}, {2, 1}, {1, 1}}, {{2, 32}, {0, 100}, {1, 59}}, {{0, 59}}});
    for (int s = 0; s < 3; ++s) {
      ASSERT_EQ(bits(alone.values(s)), bits(mixed.values(s))) << describe(c) << " sequence " << s;
    }
  }
}

// Output codes must equal codes of the f32 output rows, whichever thread finishes a column group.
TEST(Attention, QuantizedOutputsAreTheQuantizedRows) {
  for (const ActKind act : {ActKind::row, ActKind::g128}) {
    for (const int dim : {20, 64, 96, 256}) {
      AttentionCase c;
      c.heads = 6;
      c.kv_heads = 3;
      c.head_dim = dim;
      AttentionRun floats(c, {1, Isa::portable}, 40);
      floats.run(in_chunks(40, 40));
      c.output = {act == ActKind::row, act, true, 0};
      AttentionRun coded(c, {4, supported_isas().back()}, 40);
      coded.run(in_chunks(40, 40));
      const std::int64_t width = c.width(), padded = (width + 127) / 128 * 128;
      const std::int64_t group = act == ActKind::row ? width : 128;
      const std::int64_t scales = act == ActKind::row ? 1 : padded / 128;
      for (std::int64_t t = 0; t < 40; ++t) {
        const float* x = floats.values(0).data() + t * width;
        for (std::int64_t k = 0; k < padded; ++k) {
          const int code = coded.codes(0)[static_cast<std::size_t>(t * padded + k)];
          if (k >= width) {
            ASSERT_EQ(code, 128) << "pad " << k;
            continue;
          }
          const std::int64_t first = k / group * group;
          float a = 0;
          for (std::int64_t i = first; i < std::min(first + group, width); ++i) {
            a = std::max(a, std::abs(x[i]));
          }
          const float scale = coded.scales(0)[static_cast<std::size_t>(t * scales + k / group)];
          ASSERT_EQ(scale, a / 127.0f) << describe(c) << " row " << t << " column " << k;
          ASSERT_EQ(code, 128 + static_cast<int>(std::nearbyint(x[k] * (127.0f / a))));
        }
      }
    }
  }
}

// Outputs are smoothed exactly once, whichever thread finishes them, and are then quantized with
// their consumer's scale.
TEST(Attention, SmoothedOutputsTakeTheScaleOfTheirConsumer) {
  for (const ActKind act : {ActKind::none, ActKind::tensor, ActKind::online}) {
    for (const int dim : {20, 64, 96}) {
      for (const std::int64_t chunk : {1, 40}) {
        AttentionCase c;
        c.heads = 6;
        c.kv_heads = 3;
        c.head_dim = dim;
        AttentionRun floats(c, {1, Isa::portable}, 40);
        floats.run(in_chunks(40, 40));
        const std::int64_t width = c.width(), padded = (width + 127) / 128 * 128;
        std::vector<float> smooth;
        for (std::int64_t k = 0; k < width; ++k) {
          smooth.push_back(0.5f + static_cast<float>(k % 7));
        }
        // If the scale ignores earlier steps and each step has one row, it is the row's own scale.
        OnlineScale online({.decay = 0, .window = 1});
        c.output = {act != ActKind::tensor, act, true, 0};
        c.consumer = {0.02f, &online, smooth.data()};
        AttentionRun coded(c, {4, supported_isas().back()}, 40);
        coded.run(in_chunks(40, chunk));
        float largest = 0, step_largest = 0;
        for (std::int64_t i = 0; i < 40 * width; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const float x = floats.values(0)[at] * smooth[static_cast<std::size_t>(i % width)];
          step_largest = std::max(step_largest, std::abs(x));
          if (act == ActKind::none) {
            ASSERT_EQ(coded.values(0)[at], x);
          }
          if (act != ActKind::tensor) continue;
          const float code = std::nearbyint(x * (1.0f / 0.02f));
          ASSERT_EQ(coded.codes(0)[static_cast<std::size_t>(i / width * padded + i % width)],
                    128 + static_cast<int>(std::clamp(code, -127.0f, 127.0f)));
          largest = std::max(largest, std::abs(code));
        }
        if (act == ActKind::tensor) {
          EXPECT_EQ(coded.scales(0).back(), 0.02f);
          EXPECT_GT(largest, 5.0f);
        }
        if (act == ActKind::online) {
          EXPECT_EQ(online.counters().steps, static_cast<std::uint64_t>(40 / chunk));
          EXPECT_EQ(online.counters().largest, step_largest);
          if (chunk == 40) {
            EXPECT_EQ(coded.scales(0).back(), step_largest / 127.0f);
          }
        }
      }
    }
  }
}

TEST(Attention, NamesTheRowThatIsNotFinite) {
  AttentionCase c;
  const auto backend = make_cpu_backend({2, supported_isas().back()});
  AttentionShape shape{c.heads, c.kv_heads, c.head_dim, 0, nullptr, nullptr, false};
  backend->memory().scratch(backend->layout().scratch_bytes(8, shape, 64));
  Rows qkv = backend->allocate_rows(8, c.qkv_width(), {});
  RopeTable rope = make_rope(backend->memory(), {}, 1.0f, 64);
  Buffer keys(backend->memory(),
              backend->layout().page_bytes(KvPart::keys, KvType::f16, c.kv_heads, c.head_dim));
  Buffer values(backend->memory(),
                backend->layout().page_bytes(KvPart::values, KvType::f16, c.kv_heads, c.head_dim));
  const KvLayer kv{KvType::f16,   KvType::f16, keys.data(),
                   values.data(), keys.size(), values.size()};
  const std::int32_t pages[] = {0};
  SequenceRun run;
  run.rows = 8;
  run.pages = pages;
  for (std::int64_t column = 0; column < c.qkv_width(); ++column) {
    float& number = qkv.values[5 * qkv.value_stride + column];
    number = std::nanf("");
    test::expect_error(
        [&] {
          backend->rope_append(qkv, {8, {&run, 1}}, shape, rope, kv);
        },
        {"token 5"});
    number = 1.0f;
  }
  run.first_position = 60;  // beyond the only page
  EXPECT_THROW(backend->rope_append(qkv, {8, {&run, 1}}, shape, rope, kv), Error);
}

}  // namespace
}  // namespace leq::test
