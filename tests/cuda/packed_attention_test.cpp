// Attention over packed codes, on the emulator. Compares the pages after appending and quantizing
// with the definition of the codes, and the outputs with double over what each query may read;
// results must not depend on how a text is split.
#include <gtest/gtest.h>

#include "cuda/sim/emulator.h"
#include "packed_text.h"

namespace leq::LEQ_GPU {
namespace {

// Weights are rounded to f16 twice, alone and times a scale. A quarter more is allowed for sums in
// f32, exp2, and scores whose f32 sums differ.
constexpr double kNear = 2.5 / 2048;
// The tolerance for f32 sums of numbers of size 1; int8 codes and minima almost cancel.
constexpr double kExact = 2e-5;

class PackedAttention : public testing::TestWithParam<PackedCase> {
 protected:
  ~PackedAttention() override { simt::schedule() = {}; }

  void expect_near(const PackedText& text, const PackedText::Fed& fed) const {
    const PackedCase& c = GetParam();
    for (int s = 0; s < static_cast<int>(c.lengths.size()); ++s) {
      const auto near = text.in_double(fed, s, !c.exact);
      const auto& found = fed.out[static_cast<std::size_t>(s)];
      ASSERT_EQ(found.size(), near.out.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        const double most = (c.exact ? kExact : kNear) * (near.size[i] + (c.exact ? 1.0 : 0.0));
        ASSERT_NEAR(found[i], near.out[i], most)
            << "sequence " << s << ", position "
            << i / static_cast<std::size_t>(c.heads * c.head_dim) << ", number "
            << i % static_cast<std::size_t>(c.heads * c.head_dim);
      }
    }
  }
};

TEST_P(PackedAttention, IsNearDoubleHoweverATextIsCut) {
  const PackedText text(GetParam());
  const auto whole = text.feed(text.in_chunks(1 << 20));
  expect_near(text, whole);
  if (HasFatalFailure()) return;
  for (const PackedSteps& steps : {text.in_chunks(37), text.together(64), text.in_chunks(64, 40)}) {
    const auto cut = text.feed(steps);
    EXPECT_EQ(cut.keys, whole.keys);
    EXPECT_EQ(cut.values, whole.values);
    ASSERT_EQ(cut.out, whole.out);
  }
}

TEST_P(PackedAttention, IsTheSameUnderAnySchedule) {
  const PackedText text(GetParam());
  const auto steps = text.together(50);
  const auto before = text.feed(steps);
  for (const simt::Schedule& schedule : {simt::Schedule{9, simt::CopyArrival::at_issue},
                                         simt::Schedule{4, simt::CopyArrival::at_wait}}) {
    simt::schedule() = schedule;
    ASSERT_EQ(text.feed(steps).out, before.out);
  }
}

// The steps have single rows, longer runs, and both together; the scratch fits only a few rows.
class PackedRowsInTurn : public testing::TestWithParam<PackedCase> {};

TEST_P(PackedRowsInTurn, ChangeNoNumber) {
  PackedCase c = GetParam();
  // These prompts have too many rows for separate blocks per span.
  const PackedSteps steps = {{{0, 0, 590}},
                             {{1, 0, 560}},
                             {{0, 590, 1}, {1, 560, 1}},
                             {{0, 591, 1}, {1, 561, 6}},
                             {{0, 592, 20}, {1, 567, 3}}};
  const auto at_once = PackedText(c).feed(steps);
  for (const int rows : {1, 5}) {
    c.most_records = std::int64_t{rows} * c.heads * spans_of(612);
    EXPECT_EQ(PackedText(c).feed(steps).out, at_once.out) << rows << " rows at once";
  }
}

// Checks the codes of complete blocks against their definition, computed from the f16 numbers.
void expect_codes(const PackedCase& c, const PackedText::Side& side, KvPart part, int quantized) {
  const KvScheme& scheme = kv_scheme(part == KvPart::keys ? c.keys : c.values);
  const int d = c.head_dim, levels = (1 << scheme.bits) - 1;
  const int width = part == KvPart::keys ? 1 : scheme.group == 0 ? d : scheme.group;
  const int high = part == KvPart::keys ? scheme.block : 1;
  for (int j = 0; j < quantized; j += high) {
    for (int first = 0; first < d; first += width) {
      double low = INFINITY, top = -INFINITY;
      const int begin = part == KvPart::keys ? std::max(j, c.residual().sinks) : j;
      const auto each = [&](auto use) {
        for (int i = begin; i < j + high; ++i) {
          for (int k = first; k < std::min(first + width, d); ++k) {
            use(static_cast<std::size_t>(i * d + k));
          }
        }
      };
      each([&](std::size_t at) {
        low = std::min(low, side.appended[at]);
        top = std::max(top, side.appended[at]);
      });
      each([&](std::size_t at) {
        const double s = side.scales[at], m = side.minima[at];
        ASSERT_LE(m, low);
        ASSERT_GE(s * levels, top - m);
        // The stored minimum is rounded down by at most one f16 step.
        ASSERT_GE(m, low - std::abs(low) * 0x1p-10 - 0x1p-24);
        ASSERT_LE(s * levels, (top - m) * (1 + 0x1p-9) + levels * 0x1p-24);
        const double exact = s == 0 ? 0 : (side.appended[at] - m) / s;
        ASSERT_NEAR(side.codes[at], exact, 0.5 + 1e-5) << "number " << at;
      });
    }
  }
}

TEST_P(PackedAttention, PagesHoldTheCodesOfClosedBlocks) {
  const PackedCase& c = GetParam();
  const PackedText text(c);
  const auto fed = text.feed(text.together(50));
  for (int s = 0; s < static_cast<int>(c.lengths.size()); ++s) {
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      const KvScheme& scheme = kv_scheme(part == KvPart::keys ? c.keys : c.values);
      if (!scheme.packed) continue;
      for (int head = 0; head < c.kv_heads; ++head) {
        const auto side = text.side(fed, part, s, head);
        if (scheme.blocked()) {
          expect_codes(
              c, side, part,
              static_cast<int>(c.residual().quantized(c.lengths[static_cast<std::size_t>(s)])));
        } else {
          for (std::size_t i = 0; i < side.appended.size(); ++i) {
            ASSERT_NEAR(side.stored[i], side.appended[i], side.step[i] * 0.5001 + 1e-5);
          }
        }
      }
    }
  }
}

constexpr KvType kF32 = KvType::f32, kF16 = KvType::f16, kInt8 = KvType::int8,
                 kSimq4 = KvType::simq4;

INSTANTIATE_TEST_SUITE_P(Tensor, PackedAttention,
                         testing::Values(PackedCase{kSimq4, kSimq4, 4, 2, 64, 0, {150, 97}},
                                         PackedCase{kSimq4, kSimq4, 5, 1, 128, 0, {140}},
                                         PackedCase{kSimq4, kSimq4, 2, 2, 64, 0, {130}, 0, 0},
                                         PackedCase{kSimq4, kSimq4, 3, 1, 80, 40, {130}, 4, 8},
                                         PackedCase{kSimq4, kSimq4, 2, 1, 96, 0, {200}, 4, 16},
                                         PackedCase{kSimq4, kSimq4, 4, 1, 64, 0, {150}, 4, 16},
                                         PackedCase{kSimq4, kSimq4, 4, 2, 128, 0, {130}, 64, 5},
                                         PackedCase{kSimq4, kSimq4, 2, 2, 48, 0, {150}, 0, 1}));

// Spans are computed by separate blocks, or combined in one block.
INSTANTIATE_TEST_SUITE_P(Spans, PackedAttention,
                         testing::Values(PackedCase{kSimq4, kSimq4, 2, 1, 16, 0, {530, 40}},
                                         PackedCase{kSimq4, kSimq4, 2, 1, 32, 300, {540}}));

INSTANTIATE_TEST_SUITE_P(
    Exact, PackedAttention,
    testing::Values(PackedCase{kSimq4, kSimq4, 4, 2, 20, 0, {150}, 4, 32, true},
                    PackedCase{kSimq4, kSimq4, 4, 4, 36, 50, {150}, 4, 8, true},
                    PackedCase{kSimq4, kF16, 2, 1, 32, 0, {100}, -1, -1, true},
                    PackedCase{kF32, kSimq4, 2, 1, 32, 0, {100}, -1, -1, true},
                    PackedCase{kInt8, kSimq4, 2, 1, 32, 0, {140}, 4, 0, true},
                    PackedCase{kSimq4, kInt8, 2, 2, 32, 0, {100}, 4, 16, true},
                    PackedCase{kSimq4, kSimq4, 2, 1, 160, 0, {70}, 0, 3, true},
                    PackedCase{kSimq4, kSimq4, 2, 1, 16, 0, {530}, 4, 32, true}));

INSTANTIATE_TEST_SUITE_P(
    Types, PackedRowsInTurn,
    testing::Values(PackedCase{kSimq4, kSimq4, 4, 1, 16, 150, {612, 570}},
                    PackedCase{kSimq4, kSimq4, 4, 1, 32, 150, {612, 570}},
                    PackedCase{kSimq4, kInt8, 4, 1, 16, 150, {612, 570}, 4, 32, true}));

}  // namespace
}  // namespace leq::LEQ_GPU
