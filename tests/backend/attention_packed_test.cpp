// Attention over packed codes and their f16 copies must agree with the documented order and with
// double. Only positions decide whether codes or copies are read, and results must be bit-identical
// for every instruction set, thread count, chunk and batch.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/attention_oracle.h"
#include "backend/attention_run.h"
#include "backend/cpu/kernels/kernels.h"
#include "backend/packed_oracle.h"
#include "base/cpu_features.h"

namespace leq::test {
namespace {

constexpr KvType kPacked[] = {KvType::int4, KvType::simq8, KvType::simq4, KvType::simq2};

std::string describe(const AttentionCase& c) {
  return std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) + " heads of " +
         std::to_string(c.head_dim) + " window " + std::to_string(c.window) + " " +
         std::string(kv_type_name(c.key_type)) + " " + std::string(kv_type_name(c.value_type)) +
         " sinks " + std::to_string(c.residual().sinks) + " recent " +
         std::to_string(c.residual().recent);
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> all;
  for (const float v : values) all.push_back(std::bit_cast<std::uint32_t>(v));
  return all;
}

AttentionCase case_of(KvType keys, KvType values, int head_dim) {
  AttentionCase c;
  c.head_dim = head_dim;
  c.key_type = keys;
  c.value_type = values;
  return c;
}

void expect_written_order(const AttentionCase& c, const AttentionRun& run,
                          const std::vector<std::int64_t>& positions) {
  const PackedAttention written(c, run, 0);
  for (const std::int64_t t : positions) {
    for (int h = 0; h < c.heads; ++h) {
      const float* have = run.values(0).data() + (t * c.heads + h) * c.head_dim;
      ASSERT_EQ(bits(written.output(t, h)), bits({have, have + c.head_dim}))
          << describe(c) << " position " << t << " head " << h;
    }
  }
}

TEST(PackedAttention, FollowsTheWrittenOrderBitForBit) {
  std::vector<std::pair<KvType, KvType>> pairs;
  for (const KvType type : kPacked) {
    pairs.insert(pairs.end(), {{type, type}, {type, KvType::f16}, {KvType::f16, type}});
  }
  pairs.insert(pairs.end(), {{KvType::simq8, KvType::simq2},
                             {KvType::simq4, KvType::simq2},
                             {KvType::simq8, KvType::int4},
                             {KvType::int4, KvType::simq2}});
  for (const auto& [keys, values] : pairs) {
    for (const int window : {0, 530}) {
      AttentionCase c = case_of(keys, values, 22);
      c.window = window;
      AttentionRun run(c, {1, supported_isas().back()}, 1100);
      run.run(in_chunks(1100, 400));
      expect_written_order(c, run,
                           {0,  1,  3,   4,   15,  16,  31,  32,  62,  63,  64,   65,   95,
                            96, 97, 127, 128, 160, 191, 511, 512, 513, 700, 1023, 1024, 1099});
    }
  }
}

// Tests 0 to 64 sinks; the number of recent positions need not be a multiple of the block size.
TEST(PackedAttention, ZonesEndWhereTheyAreTold) {
  for (const KvType type : {KvType::simq4, KvType::simq2, KvType::simq8}) {
    for (const int sinks : {0, 1, 17, 33, 64}) {
      for (const int recent : {0, 1, 31, 32, 100}) {
        AttentionCase c = case_of(type, type, 16);
        c.heads = c.kv_heads = 1;
        c.sinks = sinks;
        c.recent = recent;
        AttentionRun run(c, {2, supported_isas().back()}, 50);
        run.run(in_chunks(210, 50));
        std::vector<std::int64_t> all;
        for (std::int64_t t = 0; t < 210; t += t < 130 ? 1 : 7) all.push_back(t);
        expect_written_order(c, run, all);
      }
    }
  }
}

TEST(PackedAttention, AgreesWithDoubleOverWhatTheCodesStandFor) {
  for (const int dim : {16, 20, 64, 80, 96, 128, 256}) {
    for (const KvType type : kPacked) {
      AttentionCase c = case_of(type, type, dim);
      c.window = dim == 96 ? 100 : 0;
      AttentionRun run(c, {2, supported_isas().back()}, 200);
      run.run(in_chunks(200, 200));
      const PackedAttention oracle(c, run, 0);
      for (const std::int64_t t : {5, 70, 199}) {
        for (int h = 0; h < c.heads; ++h) {
          std::vector<double> want = oracle.output_in_double(t, h);
          if (type == KvType::int4) {  // rotated back: H is symmetric and its own inverse
            std::vector<double> rotated(want.size());
            const int n = dim & -dim;
            for (int i = 0; i < dim; ++i) {
              for (int j = i / n * n; j < i / n * n + n; ++j) {
                const double sign =
                    std::popcount(static_cast<unsigned>(i % n & j % n)) % 2 ? -1 : 1;
                rotated[static_cast<std::size_t>(i)] +=
                    sign / std::sqrt(n) * want[static_cast<std::size_t>(j)];
              }
            }
            want = rotated;
          }
          for (int i = 0; i < dim; ++i) {
            ASSERT_NEAR(run.values(0)[static_cast<std::size_t>((t * c.heads + h) * dim + i)],
                        want[static_cast<std::size_t>(i)], 2e-4)
                << describe(c) << " position " << t << " head " << h << " dimension " << i;
          }
        }
      }
    }
  }
}

// The root mean square of the error that a quantized cache causes, relative to attention in double.
double rms_error(const AttentionCase& c, std::int64_t length) {
  AttentionRun run(c, {2, supported_isas().back()}, length);
  run.run(in_chunks(length, length));
  const NaiveAttention naive(c, 0, length);
  double squares = 0;
  int count = 0;
  for (std::int64_t t = length / 2; t < length; t += 5) {
    for (int h = 0; h < c.heads; ++h) {
      const auto want = naive.output(t, h);
      for (int i = 0; i < c.head_dim; ++i, ++count) {
        const double off =
            double{run.values(0)[static_cast<std::size_t>((t * c.heads + h) * c.head_dim + i)]} -
            want[static_cast<std::size_t>(i)];
        squares += off * off;
      }
    }
  }
  return std::sqrt(squares / count);
}

TEST(PackedAttention, ComesCloseToAttentionInDouble) {
  const auto error = [](KvType keys, KvType values) {
    AttentionCase c = case_of(keys, values, 64);
    c.recent = c.sinks = 0;  // every complete block has codes
    return rms_error(c, 200);
  };
  const double f16 = error(KvType::f16, KvType::f16);
  constexpr KvType eight = KvType::simq8, four = KvType::simq4, two = KvType::simq2;
  EXPECT_LT(error(eight, eight), 0.02);
  EXPECT_LT(error(four, four), 0.3);
  EXPECT_LT(error(two, two), 1.2);
  EXPECT_LT(f16, error(eight, eight));
  EXPECT_LT(error(eight, eight), error(four, four));
  EXPECT_LT(error(four, four), error(two, two));
  EXPECT_LT(error(KvType::int4, KvType::int4), 0.4);
}

// Checks Theorem 2: every number is off by at most half a step of its own channel (keys) or of its
// token and group (values); sinks and open blocks are stored in f16.
TEST(PackedAttention, EveryCodeIsWithinHalfAStepOfItsNumber) {
  constexpr std::int64_t kLength = 200;
  for (const KvType type : kPacked) {
    if (!kv_scheme(type).blocked()) continue;
    AttentionCase c = case_of(type, type, 80);
    AttentionRun run(c, {1, supported_isas().back()}, kLength);
    run.run(in_chunks(kLength, 64));
    const PackedAttention oracle(c, run, 0);
    int codes = 0;
    for (std::int64_t j = 0; j < kLength; ++j) {
      for (int head = 0; head < c.kv_heads; ++head) {
        for (int i = 0; i < c.head_dim; ++i) {
          const double key = oracle.copied_key(j, head, i), value = oracle.copied_value(j, head, i);
          const double k = oracle.key(kLength - 1, j, head, i);
          const double v = oracle.value(kLength - 1, j, head, i);
          if (!oracle.reads_code(kLength - 1, j)) {
            ASSERT_EQ(k, oracle.copied_key(j, head, i));
            ASSERT_EQ(v, value);
            continue;
          }
          ++codes;
          ASSERT_LE(std::abs(k - key), 0.501 * double{oracle.key_scale(j, head, i)} + 1e-6)
              << describe(c);
          ASSERT_LE(std::abs(v - value), 0.501 * double{oracle.value_scale(j, head, i)} + 1e-6)
              << describe(c);
        }
      }
    }
    EXPECT_GT(codes, c.kv_heads * c.head_dim * 30);
    // Sinks must not affect the scales of the first block.
    const KvScheme& scheme = kv_scheme(type);
    for (int i = 0; i < c.head_dim; ++i) {
      double low = 1e9, high = -1e9;
      for (std::int64_t j = scheme.sinks; j < scheme.block; ++j) {
        low = std::min(low, oracle.copied_key(j, 0, i));
        high = std::max(high, oracle.copied_key(j, 0, i));
      }
      const double step = (high - low) / ((1 << scheme.bits) - 1);
      EXPECT_LE(double{oracle.key_scale(scheme.sinks, 0, i)}, step * 1.002 + 1e-4) << describe(c);
    }
  }
}

void expect_one_result(const AttentionCase& c, std::int64_t length,
                       const std::vector<std::int64_t>& chunks) {
  AttentionRun first(c, {1, supported_isas()[1]}, length);
  first.run(in_chunks(length, length));
  const auto want = bits(first.values(0));
  for (const float v : first.values(0)) ASSERT_TRUE(std::isfinite(v)) << describe(c);
  std::set<const cpu::PackedKernels*> seen;
  for (const Isa isa : supported_isas()) {
    if (isa == Isa::portable) continue;
    if (!seen.insert(&cpu::packed_kernels(isa)).second) continue;
    for (const int threads : {1, 2, 4}) {
      for (const std::int64_t chunk : chunks) {
        AttentionRun run(c, {threads, isa}, std::min(chunk, length));
        run.run(in_chunks(length, chunk));
        ASSERT_EQ(want, bits(run.values(0))) << describe(c) << " " << isa_name(isa) << " "
                                             << threads << " threads, chunks of " << chunk;
      }
    }
  }
}

TEST(PackedAttention, SameBitsForEveryIsaThreadCountAndChunk) {
  if (supported_isas().size() < 2) GTEST_SKIP() << "one instruction set alone";
  for (const KvType type : kPacked) {
    AttentionCase c = case_of(type, type, 20);
    c.heads = 6;
    c.window = type == KvType::simq4 ? 550 : 0;
    expect_one_result(c, 620, {7, 64, 512, 620});
  }
}

TEST(PackedAttention, SameBitsForEveryHeadSizeAndGroup) {
  if (supported_isas().size() < 2) GTEST_SKIP() << "one instruction set alone";
  constexpr int kGroups[] = {1, 4, 8};
  std::size_t first = 0;  // every two of head size, group and type meet
  for (const int dim : {32, 64, 80, 96, 128, 256}) {
    std::size_t next = first++;
    for (const KvType type : kPacked) {
      AttentionCase c = case_of(type, type, dim);
      c.heads = kGroups[next++ % 3];
      c.kv_heads = 1;
      c.recent = 8;
      expect_one_result(c, 110, {9, 110});
    }
  }
}

TEST(PackedAttention, BaselineBuildOfThePortableKernelsAgrees) {
  for (const KvType type : kPacked) {
    const AttentionCase c = case_of(type, type, 32);
    AttentionRun baseline(c, {2, Isa::portable}, 200), best(c, {2, supported_isas().back()}, 300);
    baseline.run(in_chunks(300, 150));
    best.run(in_chunks(300, 300));
    ASSERT_EQ(bits(baseline.values(0)), bits(best.values(0))) << describe(c);
  }
}

TEST(PackedAttention, OneByOneGivesTheBitsOfOneChunk) {
  for (const KvType type : kPacked) {
    for (const int window : {0, 700}) {
      AttentionCase c = case_of(type, type, 64);
      c.kv_heads = 4;
      c.window = window;
      const Isa isa = supported_isas().back();
      AttentionRun whole(c, {1, isa}, 1300), steps(c, {4, isa}, 512);
      whole.run(in_chunks(1300, 1300));
      Schedule schedule = in_chunks(1100, 500);
      for (int i = 0; i < 200; ++i) schedule.push_back({{0, 1}});
      steps.run(schedule);
      ASSERT_EQ(bits(whole.values(0)), bits(steps.values(0))) << describe(c);
    }
  }
}

TEST(PackedAttention, NeighboursInABatchChangeNothing) {
  for (const KvType type : kPacked) {
    const AttentionCase c = case_of(type, type, 32);
    const Isa isa = supported_isas().back();
    AttentionRun alone(c, {2, isa}, 60), among(c, {2, isa}, 120);
    Schedule one, three;
    for (int i = 0; i < 5; ++i) {
      one.push_back({{0, 30 + i}});
      three.push_back({{1, 7 + i}, {0, 30 + i}, {2, 40}});
    }
    alone.run(one);
    among.run(three);
    ASSERT_EQ(bits(alone.values(0)), bits(among.values(0))) << describe(c);
  }
}

}  // namespace
}  // namespace leq::test
