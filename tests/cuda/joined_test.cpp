// A matmul of one token and the operation behind it in one launch give the bits of two launches,
// whichever block finishes last.
#include <gtest/gtest.h>

#include <cstring>
#include <tuple>

#include "cuda/kernels/experts/experts.h"
#include "cuda/sim/emulator.h"
#include "int_matmul_case.h"

namespace leq::LEQ_GPU {
namespace {

const std::vector<simt::Schedule> kSchedules = {
    {}, {5, simt::CopyArrival::at_issue}, {8, simt::CopyArrival::at_wait}};

class Joined : public testing::TestWithParam<IntCase> {
 protected:
  ~Joined() override { simt::schedule() = {}; }

  // run(joined) returns the results of two launches or, in each schedule, of one.
  template <class Run>
  static void expect_equal_runs(const Run& run) {
    const auto expected = run(false);
    for (const simt::Schedule& schedule : kSchedules) {
      simt::schedule() = schedule;
      EXPECT_EQ(run(true), expected);
    }
    simt::schedule() = {};
  }

  static DeviceArray<float> factors(std::size_t count) {
    std::vector<float> numbers(count);
    for (std::size_t i = 0; i < count; ++i) numbers[i] = 0.5f + 0.01f * static_cast<float>(i % 37);
    return DeviceArray<float>(numbers);
  }
  const DeviceArray<unsigned long long> fault_{std::vector<unsigned long long>{kNoFault}};
  const DeviceArray<unsigned> tickets_{std::vector<unsigned>(kTickets)};
};

using JoinedNorm = Joined;

TEST_P(JoinedNorm, IsTheNormOfTheOutputs) {
  const IntMatmulData data(GetParam());
  const int width = GetParam().outputs();
  const auto padded = static_cast<std::size_t>(padded_columns(width));
  const auto gain = factors(padded), beta = factors(padded + 5), smooth = factors(padded + 9);
  for (const NormForm form : {NormForm::rms, NormForm::layer}) {
    // Outputs, then the norm as numbers, codes, scales and sums.
    const auto run = [&](bool joined) {
      const DeviceArray<float> out(padded), scales(padded / 128);
      const DeviceArray<std::int8_t> codes(padded);
      const DeviceArray<std::int32_t> sums(padded / 128);
      for (const auto& bytes : {out.bytes(), scales.bytes(), codes.bytes(), sums.bytes()}) {
        rt::fill_zero(bytes.data(), bytes.size(), test_stream());
      }
      const auto kept = data.run([&](const IntMatmul& a, rt::Stream& stream) {
        NormArguments next;
        next.x = a.out;
        next.out = {out.data(), static_cast<std::int64_t>(padded)};
        next.tokens = 1;
        next.width = width;
        next.form = form;
        next.gain = gain.data();
        next.beta = beta.data();
        next.inv_smooth = form == NormForm::layer ? smooth.data() : nullptr;
        next.eps = 1e-5f;
        next.quantize.out = {codes.data(), scales.data(), sums.data(), 0, 0, 0, 128, 128};
        next.quantize.fault = {fault_.data(), 1};
        ASSERT_TRUE(joins(a, next));
        // The outputs of an earlier run would be added to.
        rt::fill_zero(a.out.values, static_cast<std::size_t>(width) * sizeof(float), stream);
        if (joined) return launch_joined(a, next, tickets_.data(), stream);
        launch_int_matmul(a, stream);
        launch_norm(next, stream);
      });
      return std::tuple(kept, out.host(), scales.host(), codes.host(), sums.host());
    };
    expect_equal_runs(run);
  }
  EXPECT_EQ(fault_.host()[0], kNoFault);
  EXPECT_EQ(tickets_.host(), std::vector<unsigned>(kTickets));
}

INSTANTIATE_TEST_SUITE_P(Kernels, JoinedNorm,
                         testing::Values(IntCase{8, false, 128, 128, 1, 384, {4224}, Finish::add},
                                         IntCase{8, true, 0, 128, 1, 256, {300}, Finish::add},
                                         IntCase{4, true, 128, 128, 1, 512, {1100}, Finish::add},
                                         IntCase{3, true, 128, 0, 1, 256, {160, 96}, Finish::store},
                                         IntCase{2, true, 128, 128, 1, 384, {128}, Finish::gelu}));

using JoinedRope = Joined;

// Heads of 32 numbers: queries, keys and values, and outputs behind them that are no heads.
TEST_P(JoinedRope, PreparesTheHeadsOfTheOutputs) {
  const IntMatmulData data(GetParam());
  constexpr int kDims = 32, kHeads = 4, kKvHeads = 2, kPosition = 67;
  const auto gain = factors(kDims), table = factors((kPosition + 1) * kDims);
  const DeviceArray<AttentionRun> runs(std::vector<AttentionRun>{{0, 1, kPosition, 0}});
  const DeviceArray<std::int32_t> lists(std::vector<std::int32_t>{0, 1, 0});  // row's run, pages
  for (const KvType type : {KvType::int8, KvType::f16}) {
    constexpr std::size_t kPages = std::size_t{2} * kKvHeads * 64 * (4 * kDims + 4);
    const auto run = [&](bool joined) {
      const DeviceArray<std::byte> keys(kPages), values(kPages);
      for (const auto* side : {&keys, &values}) rt::fill_zero(side->data(), kPages, test_stream());
      const auto qkv = data.run([&](const IntMatmul& a, rt::Stream& stream) {
        RopeAppendArguments next;
        next.qkv = a.out;
        next.batch = {1, runs.data(), 1, lists.data(), lists.data() + 1, 1, 1, kPosition + 1};
        next.heads = {kHeads, kKvHeads, kDims, 0, kHeads / kKvHeads};
        next.q_gain = gain.data();
        next.q_eps = 1e-5f;
        next.table = table.data();
        next.rotary_dims = kDims;
        next.keys = {keys.data(), static_cast<std::int64_t>(kPages / 2), type};
        next.values = {values.data(), static_cast<std::int64_t>(kPages / 2), type};
        next.fault = {fault_.data(), 1};
        ASSERT_TRUE(joins(a, next));
        if (joined) return launch_joined(a, next, tickets_.data(), stream);
        launch_int_matmul(a, stream);
        launch_rope_append(next, stream);
      });
      return std::tuple(qkv, keys.host(), values.host());
    };
    expect_equal_runs(run);
  }
  EXPECT_EQ(fault_.host()[0], kNoFault);
  EXPECT_EQ(tickets_.host(), std::vector<unsigned>(kTickets));
}

INSTANTIATE_TEST_SUITE_P(Kernels, JoinedRope,
                         testing::Values(IntCase{8, false, 128, 128, 1, 384, {128, 64, 64}},
                                         IntCase{8, true, 128, 128, 1, 256, {320}},
                                         IntCase{4, true, 128, 128, 1, 512, {128, 64, 64}},
                                         IntCase{3, true, 128, 0, 1, 256, {256}},
                                         IntCase{2, true, 128, 128, 1, 384, {128, 64, 128}}));

// Routing as a router writes it: experts' numbers, their weights, a shared expert's weight.
std::vector<float> choice_of(int tokens, int stride) {
  std::vector<float> rows(static_cast<std::size_t>(tokens * stride));
  for (int t = 0; t < tokens; ++t) {
    float* const row = rows.data() + t * stride;
    const std::int32_t ids[2] = {0, 1};
    std::memcpy(row, ids, sizeof ids);
    row[2] = 0.25f + 0.5f * static_cast<float>(t);
    row[3] = -1.5f;
    row[6] = 0.75f;
  }
  return rows;
}

class JoinedSum : public Joined {
 protected:
  static constexpr int kStride = 32, kActive = 2;

  // The sum and the products; `launch` gets the products' and the sum's arguments.
  using Launch = std::function<void(const AddExpertsArguments& sum)>;
  std::vector<float> sum_of(int tokens, int width, const FloatRows& products, bool has_shared,
                            const Launch& launch) const {
    const DeviceArray<float> choice(choice_of(tokens, kStride));
    std::vector<float> before(static_cast<std::size_t>(tokens * width));
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = static_cast<float>(i % 13);
    const DeviceArray<float> x(before);
    launch({{x.data(), width},
            products,
            {choice.data(), kStride, kActive},
            false,
            has_shared,
            tokens,
            width});
    return x.host();
  }
};

TEST_P(JoinedSum, OfExpertsIsThatOfTwoLaunches) {
  const IntCase& c = GetParam();
  const IntMatmulData first(c, 3);
  IntMatmulData second(c, 4);
  second.take_tokens(first);
  const DeviceArray<CodeSegment> table(
      std::vector<CodeSegment>{first.segment(0), second.segment(0)});
  const int rows = c.tokens, tokens = rows / kActive, width = c.outputs();
  const auto run = [&](bool joined) {
    const DeviceArray<float> products(static_cast<std::size_t>(rows * width));
    return sum_of(tokens, width, {products.data(), width}, false,
                  [&](const AddExpertsArguments& sum) {
                    ExpertMatmul a;
                    a.matmul = first.arguments();
                    a.matmul.out = sum.products;
                    a.segments = table.data();
                    a.choice = sum.choice;
                    a.rows = rows;
                    a.has_row_each = true;
                    ASSERT_TRUE(adds(a));
                    if (joined) {
                      a.add = sum;
                      a.add_tickets = tickets_.data();
                    }
                    launch_expert_matmul(a, test_stream());
                    if (!joined) launch_add_experts(sum, test_stream());
                  });
  };
  expect_equal_runs(run);
  EXPECT_EQ(tickets_.host(), std::vector<unsigned>(kTickets));
}

// The second half of the products is computed by the joined launch.
TEST_P(JoinedSum, WithASharedExpertIsThatOfTwoLaunches) {
  IntCase c = GetParam();
  if (c.bits < 4) return;  // has two launches
  c.tokens = 1;
  const IntMatmulData data(c);
  const int width = c.outputs();
  std::vector<float> given(static_cast<std::size_t>((kActive + 1) * width));
  for (std::size_t i = 0; i < given.size(); ++i) given[i] = 0.1f * static_cast<float>(i % 17);
  const auto run = [&](bool joined) {
    const DeviceArray<float> products(given);
    return sum_of(1, width, {products.data(), width}, true, [&](const AddExpertsArguments& sum) {
      IntMatmul a = data.arguments();
      a.out.values = products.data() + kActive * width;
      ASSERT_TRUE(joins(a, sum));
      if (joined) return launch_joined(a, sum, tickets_.data(), test_stream());
      launch_int_matmul(a, test_stream());
      launch_add_experts(sum, test_stream());
    });
  };
  expect_equal_runs(run);
}

INSTANTIATE_TEST_SUITE_P(Kernels, JoinedSum,
                         testing::Values(IntCase{8, false, 128, 128, 6, 384, {300}},
                                         IntCase{4, true, 128, 128, 4, 256, {140}},
                                         IntCase{3, true, 128, 0, 2, 256, {64}},
                                         IntCase{2, true, 128, 128, 2, 384, {33}}));

TEST(JoinedLaunches, OnlyWhatFollowsTheOutputsOfOneToken) {
  const IntMatmulData data({8, false, 128, 128, 1, 256, {64}}),
      two({8, false, 128, 128, 2, 256, {64}});
  NormArguments next;
  next.x = next.out = data.arguments().out;
  next.out.values += 64;
  next.tokens = 1;
  next.width = 64;
  EXPECT_TRUE(joins(data.arguments(), next));
  EXPECT_FALSE(joins(two.arguments(), next));
  next.x.values += 1;
  EXPECT_FALSE(joins(data.arguments(), next));
  next.x = next.out = data.arguments().out;  // in place
  EXPECT_FALSE(joins(data.arguments(), next));
}

}  // namespace
}  // namespace leq::LEQ_GPU
