// Codes that matmuls, attention and convolutions compute from their own outputs must equal those of
// quantize_rows, whichever block finishes last.
#include <gtest/gtest.h>

#include <limits>

#include "attention_case.h"
#include "cuda/kernels/experts/experts.h"
#include "cuda/sim/emulator.h"
#include "delta_text.h"
#include "int_matmul_case.h"

namespace leq::LEQ_GPU {
namespace {

// Codes, scales and sums of several rows, on the device.
class Coded {
 public:
  Coded(std::int64_t rows, std::int64_t width, const std::vector<float>& smooth)
      : rows_(rows),
        width_(width),
        padded_(padded_columns(width)),
        codes_(static_cast<std::size_t>(rows * padded_)),
        scales_(static_cast<std::size_t>(rows * padded_ / 128)),
        sums_(static_cast<std::size_t>(rows * padded_ / 128)),
        smooth_(smooth),
        fault_(std::vector<unsigned long long>{kNoFault}),
        tickets_(std::vector<unsigned>(kTickets)) {
    codes_.zero();
    scales_.zero();
    sums_.zero();
  }

  Quantize quantize() const {
    Quantize q;
    q.out = {codes_.data(), scales_.data(), sums_.data(), padded_,
             padded_ / 128, padded_ / 128,  128,          128};
    q.fault = {fault_.data(), 3};
    return q;
  }
  OutputCodes of_outputs() const { return {quantize(), smooth(), tickets_.data()}; }
  const float* smooth() const { return smooth_.bytes().empty() ? nullptr : smooth_.data(); }
  // Quantizes rows with quantize_rows, which may change them (smoothing); returns the rows.
  std::vector<float> code(const std::vector<float>& rows, std::int64_t stride) const {
    const DeviceArray<float> x(rows);
    write_late({x.bytes()});
    launch_quantize({{x.data(), stride}, rows_, width_, smooth(), quantize()}, test_stream());
    return x.host();
  }
  void expect_same(const Coded& other) const {
    EXPECT_EQ(codes_.host(), other.codes_.host());
    EXPECT_EQ(scales_.host(), other.scales_.host());
    EXPECT_EQ(sums_.host(), other.sums_.host());
    EXPECT_EQ(fault_.host(), other.fault_.host());
    EXPECT_EQ(tickets_.host(), std::vector<unsigned>(kTickets));
  }
  unsigned long long fault() const { return fault_.host()[0]; }

 private:
  std::int64_t rows_, width_, padded_;
  DeviceArray<std::int8_t> codes_;
  DeviceArray<float> scales_;
  DeviceArray<std::int32_t> sums_;
  DeviceArray<float> smooth_;
  DeviceArray<unsigned long long> fault_;
  DeviceArray<unsigned> tickets_;
};

std::vector<float> factors(std::int64_t width) {
  std::vector<float> all(static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = 0.5f + static_cast<float>(i % 7);
  return all;
}

struct Case {
  IntCase matmul;
  bool smoothed;

  friend void PrintTo(const Case& c, std::ostream* out) { PrintTo(c.matmul, out); }
};

class MatmulCodes : public testing::TestWithParam<Case> {
 protected:
  ~MatmulCodes() override { simt::schedule() = {}; }
};

TEST_P(MatmulCodes, AreThoseOfTheRows) {
  const IntCase& c = GetParam().matmul;
  const IntMatmulData data(c);
  const std::int64_t width = is_gated(c.finish) ? c.rows[0] : c.outputs();
  const auto smooth = GetParam().smoothed ? factors(width) : std::vector<float>();
  const Coded expected(c.tokens, width, smooth);
  const auto rows = expected.code(data.run(), data.arguments().out.stride);
  for (const simt::Schedule& schedule :
       {simt::Schedule{}, simt::Schedule{5, simt::CopyArrival::at_issue}, simt::Schedule{8}}) {
    simt::schedule() = schedule;
    const Coded found(c.tokens, width, smooth);
    const auto kept = data.run([&](const IntMatmul& a, rt::Stream& stream) {
      IntMatmul coded = a;
      ASSERT_TRUE(makes_codes(coded));
      coded.codes = found.of_outputs();
      launch_int_matmul(coded, stream);
    });
    found.expect_same(expected);
    EXPECT_EQ(kept, rows);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, MatmulCodes,
    testing::Values(Case{{8, false, 0, 0, 1, 256, {300, 300}, Finish::swiglu}, false},
                    Case{{8, false, 0, 0, 1, 384, {257, 257}, Finish::swiglu}, true},
                    Case{{8, true, 0, 0, 1, 384, {140}, Finish::gelu}, true},
                    Case{{4, false, 128, 0, 1, 384, {300, 300}, Finish::swiglu}, true},
                    Case{{4, true, 128, 128, 4, 256, {129, 129}, Finish::swiglu}, false},
                    Case{{3, true, 128, 0, 8, 256, {129, 129}, Finish::swiglu}, true},
                    Case{{8, false, 0, 128, 6, 512, {140}, Finish::gelu}, false},
                    Case{{3, false, 64, 0, 1, 256, {200, 200}, Finish::swiglu}, false},
                    Case{{2, true, 32, 128, 1, 256, {130}, Finish::gelu}, false}));

TEST(MatmulCodes, AreNotMadeByKernelsOfManyTokens) {
  EXPECT_FALSE(
      makes_codes(IntMatmulData({8, false, 0, 0, 9, 256, {64, 64}, Finish::swiglu}).arguments()));
  EXPECT_FALSE(makes_codes(IntMatmulData({8, false, 0, 0, 1, 256, {64, 64, 64}}).arguments()));
  EXPECT_FALSE(makes_codes(IntMatmulData({4, false, 64, 128, 5, 256, {64}}).arguments()));
  EXPECT_FALSE(makes_codes(IntMatmulData({4, false, 128, 128, 17, 256, {64}}).arguments()));
}

class ExpertCodes : public testing::TestWithParam<IntCase> {
 protected:
  ~ExpertCodes() override { simt::schedule() = {}; }
};

// Three tokens with two experts each; the second token has an input that is not finite.
TEST_P(ExpertCodes, AreThoseOfTheRows) {
  const IntCase& c = GetParam();
  constexpr int kRows = 6;
  const IntMatmulData first(c, 3);
  IntMatmulData second(c, 4);
  second.take_tokens(first);
  std::vector<CodeSegment> segments;
  for (const IntMatmulData* data : {&first, static_cast<const IntMatmulData*>(&second)}) {
    for (std::size_t i = 0; i < c.rows.size(); ++i) segments.push_back(data->segment(i));
  }
  const DeviceArray<CodeSegment> table(segments);
  std::vector<std::int32_t> ids(3 * 32);
  for (std::size_t t = 0; t < 3; ++t) ids[t * 32 + 1] = 1;
  const DeviceArray<std::int32_t> choice(ids);
  const std::int64_t width = c.rows[0], stride = float_stride(width);
  const DeviceArray<float> out(std::vector<float>(static_cast<std::size_t>(kRows * stride)));
  ExpertMatmul a;
  a.matmul = first.arguments();
  a.matmul.out = {out.data(), stride};
  a.segments = table.data();
  a.choice = {reinterpret_cast<float*>(choice.data()), 32, 2};
  a.rows = kRows;
  ASSERT_TRUE(makes_codes(a));
  const float infinite = std::numeric_limits<float>::infinity();
  rt::copy_to_device(a.matmul.x.scales + a.matmul.x.scale_stride, &infinite, sizeof infinite,
                     test_stream());
  launch_expert_matmul(a, test_stream());
  const Coded expected(kRows, width, {});
  expected.code(out.host(), stride);
  EXPECT_EQ(expected.fault(), 3ull << 32 | 2);
  for (const simt::Schedule& schedule :
       {simt::Schedule{}, simt::Schedule{5, simt::CopyArrival::at_issue}, simt::Schedule{8}}) {
    simt::schedule() = schedule;
    const Coded found(kRows, width, {});
    a.matmul.codes = found.of_outputs();
    launch_expert_matmul(a, test_stream());
    found.expect_same(expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, ExpertCodes,
    testing::Values(IntCase{8, false, 128, 128, 3, 384, {300, 300}, Finish::swiglu},
                    IntCase{8, false, 0, 0, 3, 256, {129, 129}, Finish::swiglu},
                    IntCase{4, true, 32, 128, 3, 256, {140, 140}, Finish::geglu}));

class AttentionCodes : public testing::TestWithParam<AttentionCase> {
 protected:
  ~AttentionCodes() override { simt::schedule() = {}; }
};

// Tests one span and several spans, with runs of one row and longer runs.
TEST_P(AttentionCodes, AreThoseOfTheRows) {
  const AttentionCase& c = GetParam();
  const AttentionData data(c);
  AttentionCase at_once = c;
  at_once.most_records = kMaxRecords;
  std::vector<AttentionPart> parts;
  std::int64_t rows = 0;
  for (int i = 0; i < static_cast<int>(c.runs.size()); ++i) {
    parts.push_back({i, 0, c.runs[static_cast<std::size_t>(i)].rows});
    rows += parts.back().rows;
  }
  const auto smooth = factors(data.out_width());
  const Coded expected(rows, data.out_width(), smooth);
  const auto kept = expected.code(AttentionData(at_once).run(parts, false), data.out_width());
  for (const simt::Schedule& schedule :
       {simt::Schedule{}, simt::Schedule{7, simt::CopyArrival::at_wait}, simt::Schedule{2}}) {
    simt::schedule() = schedule;
    const Coded found(rows, data.out_width(), smooth);
    EXPECT_EQ(data.run(parts, false, found.of_outputs()), kept);
    found.expect_same(expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, AttentionCodes,
    testing::Values(AttentionCase{KvType::int8, KvType::int8, 2, 2, 128, 0, {{1100, 1}, {17, 1}}},
                    AttentionCase{KvType::f16, KvType::f16, 8, 2, 64, 600, {{1400, 1}, {30, 9}}},
                    AttentionCase{KvType::int8, KvType::int8, 4, 1, 32, 0, {{0, 70}}},
                    AttentionCase{KvType::f16, KvType::f16, 2, 1, 256, 0, {{700, 2}}}));

// The scratch is sufficient for one row at a time, or for three rows of a batch with several runs.
INSTANTIATE_TEST_SUITE_P(
    Turns, AttentionCodes,
    testing::Values(
        AttentionCase{
            KvType::int8, KvType::int8, 2, 2, 128, 0, {{1100, 1}, {17, 1}, {600, 1}}, -1, 2 * 3},
        AttentionCase{KvType::f16,
                      KvType::f16,
                      8,
                      2,
                      64,
                      0,
                      {{600, 1}, {530, 6}, {700, 1}, {720, 1}, {900, 1}, {50, 3}},
                      -1,
                      8 * 2 * 3}));

// Calls run(codes), which returns the rows of its outputs, without codes and with codes.
template <class Run>
void expect_codes(std::int64_t rows, std::int64_t width, std::int64_t stride, const Run& run) {
  const auto smooth = factors(width);
  const Coded expected(rows, width, smooth), found(rows, width, smooth);
  const std::vector<float> smoothed = expected.code(run({}), stride);
  EXPECT_EQ(run(found.of_outputs()), smoothed);
  found.expect_same(expected);
}
std::vector<float> random_numbers(int count) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

TEST(OutputCodes, OfGatedDeltaNetAreThoseOfTheRows) {
  DeltaText text({1, 2, 16, 256, 4}, {9, 5});
  expect_codes(14, 512, 512, [&](const OutputCodes& codes) {
    text.codes = codes;
    const auto of = text.run({{{0, 9}, {1, 5}}});
    std::vector<float> all = of[0];
    all.insert(all.end(), of[1].begin(), of[1].end());
    return all;
  });
}

TEST(OutputCodes, OfShortConvolutionsAreThoseOfTheRows) {
  constexpr int kChannels = 200, kTaps = 3, kRows = 5, kStride = 208;
  const DeviceArray<float> mixed(random_numbers(kRows * 3 * kChannels));
  const DeviceArray<float> conv(random_numbers(kTaps * kChannels));
  const DeviceArray<float> state(std::size_t{(kTaps - 1) * kChannels});
  AttentionRun run;
  run.rows = kRows;
  const auto address = reinterpret_cast<std::uintptr_t>(state.data());
  run.state_to[0] = static_cast<std::uint32_t>(address & 0xffffffffu);
  run.state_to[1] = static_cast<std::uint32_t>(address >> 32);
  const DeviceArray<AttentionRun> runs(std::vector<AttentionRun>{run});
  const DeviceArray<std::int32_t> row_runs(std::vector<std::int32_t>(kRows, 0));
  const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{kNoFault});
  expect_codes(kRows, kChannels, kStride, [&](const OutputCodes& codes) {
    const DeviceArray<float> out(std::vector<float>(kRows * kStride));
    ShortConvArguments a;
    a.mixed = {mixed.data(), 3 * kChannels};
    a.out = {out.data(), kStride};
    a.batch.tokens = kRows;
    a.batch.runs = runs.data();
    a.batch.run_count = 1;
    a.batch.row_runs = row_runs.data();
    a.channels = a.conv_stride = kChannels;
    a.taps = kTaps;
    a.conv = conv.data();
    a.fault = {fault.data(), 1};
    a.codes = codes;
    launch_short_conv(a, test_stream());
    return out.host();
  });
}

TEST(OutputCodes, OfGatedAttentionAreThoseOfTheRows) {
  constexpr int kRows = 3, kWidth = 200, kStride = 208;
  const std::vector<float> outputs = random_numbers(kRows * kStride);
  const DeviceArray<float> gates(random_numbers(kRows * kWidth));
  expect_codes(kRows, kWidth, kStride, [&](const OutputCodes& codes) {
    const DeviceArray<float> out(outputs);
    launch_gate_outputs({{out.data(), kStride}, {gates.data(), kWidth}, kRows, kWidth, codes},
                        test_stream());
    return out.host();
  });
}

}  // namespace
}  // namespace leq::LEQ_GPU
