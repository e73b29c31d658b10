// Tests of experts: the router against a softmax in double, the linears of selected experts against
// the formulas of docs/numerics.md, and the weighted sum against its documented order.
#include "cuda/kernels/experts/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include "int_matmul_case.h"

namespace leq::LEQ_GPU {
namespace {

constexpr std::int64_t kStride = 160;

struct RouteCase {
  int experts, active, tokens;
  bool normalized;
};

class Route : public testing::TestWithParam<RouteCase> {};

// Returns rows [T][stride] of logits after routing them, for which they are the outputs of a linear
// whose weights are the identity.
std::vector<float> routed(RoutedLinear a, const std::vector<float>& rows, std::int64_t stride) {
  const std::int64_t outputs = a.experts + (a.has_shared ? 1 : 0), width = float_stride(outputs);
  const std::int64_t tokens = std::ssize(rows) / stride;
  std::vector<float> logits(static_cast<std::size_t>(tokens * width));
  std::vector<float> identity(static_cast<std::size_t>(outputs * width));
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::copy_n(rows.begin() + t * stride, outputs, logits.begin() + t * width);
  }
  for (std::int64_t e = 0; e < outputs; ++e) identity[static_cast<std::size_t>(e * width + e)] = 1;
  const DeviceArray<float> x(logits), weights(identity), out(rows);
  const DeviceArray<unsigned> tickets{std::vector<unsigned>(kTickets)};
  a.matmul.segments[0] = {{weights.data(), FloatType::f32}, nullptr, outputs};
  a.matmul.segment_count = 1;
  a.matmul.tokens = tokens;
  a.matmul.columns = outputs;
  a.matmul.values = {x.data(), width};
  a.matmul.out = {out.data(), stride};
  a.tickets = tickets.data();
  write_late({x.bytes()});
  launch_route(a, test_stream());
  EXPECT_EQ(tickets.host(), std::vector<unsigned>(kTickets));
  return out.host();
}

// The logits have few distinct values, so that many of them are equal.
std::vector<float> logits_of(const RouteCase& c) {
  std::mt19937 random(5);
  std::vector<float> rows(static_cast<std::size_t>(c.tokens * kStride), 1e9f);
  for (int t = 0; t < c.tokens; ++t) {
    for (int e = 0; e < c.experts; ++e) {
      const float step = t % 2 == 0 ? 0.5f : 0.001f;
      rows[static_cast<std::size_t>(t * kStride + e)] =
          static_cast<float>(static_cast<int>(random() % 2000) - 1000) * (t % 2 == 0 ? 0.01f : 1) *
          step;
      if (t % 3 == 0) rows[static_cast<std::size_t>(t * kStride + e)] = static_cast<float>(e % 3);
    }
  }
  return rows;
}

TEST_P(Route, ChoosesTheLargestAndOfEqualsTheLower) {
  const RouteCase c = GetParam();
  const std::vector<float> rows = logits_of(c);
  const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{kNoFault});
  const std::vector<float> found = routed({.active = c.active,
                                           .experts = c.experts,
                                           .normalized = c.normalized,
                                           .fault = {fault.data(), 3}},
                                          rows, kStride);
  EXPECT_EQ(fault.host()[0], kNoFault);
  for (int t = 0; t < c.tokens; ++t) {
    const float* const row = rows.data() + t * kStride;
    std::vector<int> order(static_cast<std::size_t>(c.experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
    double sum = 0, chosen = 0;
    for (int e = 0; e < c.experts; ++e) sum += std::exp(double{row[e]} - row[order[0]]);
    order.resize(static_cast<std::size_t>(c.active));
    std::sort(order.begin(), order.end());
    const float largest = *std::max_element(row, row + c.experts);
    for (const int e : order) chosen += std::exp(double{row[e]} - largest) / sum;
    for (int i = 0; i < c.active; ++i) {
      const std::size_t at = static_cast<std::size_t>(t * kStride + i);
      const int expert = order[static_cast<std::size_t>(i)];
      std::int32_t id = -1;
      std::memcpy(&id, &found[at], sizeof id);
      ASSERT_EQ(id, expert) << "token " << t << ", number " << i;
      const double p = std::exp(double{row[expert]} - largest) / sum;
      ASSERT_NEAR(found[at + static_cast<std::size_t>(c.active)], c.normalized ? p / chosen : p,
                  2e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Route,
                         testing::Values(RouteCase{8, 2, 5, true}, RouteCase{4, 4, 3, false},
                                         RouteCase{128, 8, 4, true}, RouteCase{100, 7, 6, false},
                                         RouteCase{1, 1, 2, true}, RouteCase{70, 70, 5, true},
                                         RouteCase{128, 8, 1, true}, RouteCase{100, 7, 20, true}));

TEST(RouteFaults, ARowThatIsNotFiniteIsReportedAndChoosesSomeExpert) {
  std::vector<float> rows(3 * kStride, 1.0f);
  rows[kStride + 2] = std::nanf("");
  const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{kNoFault});
  const std::vector<float> found = routed(
      {.active = 2, .experts = 4, .normalized = true, .fault = {fault.data(), 7}}, rows, kStride);
  EXPECT_EQ(fault.host()[0], 7ull << 32 | 1);
  std::int32_t ids[2];
  std::memcpy(ids, &found[kStride], sizeof ids);
  for (const std::int32_t id : ids) EXPECT_TRUE(id >= 0 && id < 4) << id;
}

// Sigmoids are chosen with a bias, also where their sums are negative, and weighted without it.
TEST(RouteSigmoid, ABiasChoosesAndDoesNotWeigh) {
  constexpr int kExperts = 40, kActive = 3, kTokens = 4;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> rows(kTokens * kStride), bias(kExperts);
  for (float& logit : rows) logit = normal(random);
  for (float& one : bias) one = normal(random) - 2;
  const DeviceArray<float> bias_there(bias);
  const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{kNoFault});
  const std::vector<float> found = routed({.active = kActive,
                                           .experts = kExperts,
                                           .normalized = true,
                                           .fault = {fault.data(), 1},
                                           .sigmoid = true,
                                           .choice_bias = bias_there.data(),
                                           .sum_offset = 0.25f,
                                           .weight_scale = 3},
                                          rows, kStride);
  for (std::size_t t = 0; t < kTokens; ++t) {
    const float* const row = rows.data() + t * kStride;
    const auto p = [&](int e) { return 1 / (1 + std::exp(-double{row[e]})); };
    std::vector<int> order(kExperts);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, [&](int a, int b) {
      return p(a) + double{bias[static_cast<std::size_t>(a)]} >
             p(b) + double{bias[static_cast<std::size_t>(b)]};
    });
    std::sort(order.begin(), order.begin() + kActive);
    const double sum = p(order[0]) + p(order[1]) + p(order[2]) + 0.25;
    for (std::size_t i = 0; i < kActive; ++i) {
      std::int32_t id = -1;
      std::memcpy(&id, &found[t * kStride + i], sizeof id);
      EXPECT_EQ(id, order[i]);
      EXPECT_NEAR(found[t * kStride + kActive + i], 3 * p(order[i]) / sum, 1e-6);
    }
  }
}

TEST(RouteShared, TheWeightOfASharedExpertFollowsThoseOfTheOthers) {
  const std::vector<float> logits = {0.0f, 1.5f, -3.0f, 40.0f};
  for (const bool has_shared : {false, true}) {
    std::vector<float> rows(logits.size() * 32, 5.0f);
    for (std::size_t t = 0; t < logits.size(); ++t) {
      rows[t * 32 + t] = 6.0f;  // of four experts
      rows[t * 32 + 4] = logits[t];
    }
    const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{kNoFault});
    const std::vector<float> found = routed({.active = 2,
                                             .experts = 4,
                                             .normalized = true,
                                             .has_shared = has_shared,
                                             .fault = {fault.data(), 1}},
                                            rows, 32);
    for (std::size_t t = 0; t < logits.size(); ++t) {
      std::int32_t ids[2];
      std::memcpy(ids, &found[t * 32], sizeof ids);
      EXPECT_EQ(ids[0], 0);
      EXPECT_EQ(ids[1], t == 0 ? 1 : static_cast<int>(t));
      EXPECT_NEAR(found[t * 32 + 2] + found[t * 32 + 3], 1, 1e-6);
      const double want = has_shared ? 1 / (1 + std::exp(-double{logits[t]})) : 5.0;
      EXPECT_NEAR(found[t * 32 + 6], want, 1e-7);
    }
  }
}

TEST(RouteFaults, ASharedExpertsLogitThatIsNotFiniteIsReported) {
  std::vector<float> rows(2 * 32, 1.0f);
  rows[32 + 4] = INFINITY;
  const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{kNoFault});
  routed({.active = 2,
          .experts = 4,
          .normalized = true,
          .has_shared = true,
          .fault = {fault.data(), 7}},
         rows, 32);
  EXPECT_EQ(fault.host()[0], 7ull << 32 | 1);
}

struct GroupCase {
  int experts, active, tokens, tile_rows = kExpertTile;
};

class GroupRows : public testing::TestWithParam<GroupCase> {};

TEST_P(GroupRows, AStableSortByExpert) {
  const GroupCase c = GetParam();
  std::mt19937 random(11);
  std::vector<std::int32_t> choice(static_cast<std::size_t>(c.tokens * kStride), -7), chosen;
  for (int t = 0; t < c.tokens; ++t) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(c.experts));
    std::iota(all.begin(), all.end(), 0);
    // The last experts are chosen by few tokens.
    std::shuffle(all.begin(), all.end() - (t % 5 == 0 ? 0 : (c.experts - c.active) / 2), random);
    std::sort(all.begin(), all.begin() + c.active);
    chosen.insert(chosen.end(), all.begin(), all.begin() + c.active);
    std::copy_n(all.begin(), c.active, choice.begin() + t * kStride);
  }
  const DeviceArray<std::int32_t> there(choice);
  const DeviceArray<std::int32_t> lists(std::vector<std::int32_t>(2 * (kMaxExperts + 1), -1));
  const ExpertGroups groups = {lists.data(), lists.data() + kMaxExperts + 1, c.experts,
                               c.tile_rows};
  write_late({there.bytes()});
  launch_group_rows(
      {{reinterpret_cast<float*>(there.data()), kStride, c.active}, c.tokens * c.active, groups},
      test_stream());
  std::vector<int> order(chosen.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return chosen[static_cast<std::size_t>(a)] < chosen[static_cast<std::size_t>(b)];
  });
  std::vector<std::int32_t> want_lists(2 * (kMaxExperts + 1), -1);
  for (std::int32_t e = 0, tiles = 0; e <= c.experts; ++e) {
    want_lists[static_cast<std::size_t>(e)] = static_cast<std::int32_t>(
        std::ranges::count_if(chosen, [&](std::int32_t of) { return of < e; }));
    want_lists[static_cast<std::size_t>(kMaxExperts + 1 + e)] = tiles;
    const auto rows = static_cast<std::int32_t>(std::ranges::count(chosen, e));
    tiles += (rows + c.tile_rows - 1) / c.tile_rows;
  }
  EXPECT_EQ(lists.host(), want_lists);
  for (std::size_t place = 0; place < order.size(); ++place) {
    const int token = order[place] / c.active, i = order[place] % c.active;
    choice[static_cast<std::size_t>(token * kStride + i + 2 * c.active)] =
        static_cast<std::int32_t>(place);
  }
  EXPECT_EQ(there.host(), choice);
}

INSTANTIATE_TEST_SUITE_P(Sizes, GroupRows,
                         testing::Values(GroupCase{1, 1, 3}, GroupCase{8, 2, 65},
                                         GroupCase{128, 8, 512, 16}, GroupCase{100, 7, 40},
                                         GroupCase{512, 10, 431}, GroupCase{1024, 3, 900}));

// Tests the linears of three experts; each token selects two of them.
class ExpertLinears : public testing::TestWithParam<IntCase> {};

constexpr int kExperts = 3, kActive = 2;

// The rows of a step, grouped by expert.
class InGroups {
 public:
  std::vector<std::int32_t> places;  // [R]

  InGroups(const ExpertMatmul& a, int rows, int tile_rows)
      : lists_(std::vector<std::int32_t>(2 * (kExperts + 1), -1)),
        groups_{lists_.data(), lists_.data() + kExperts + 1, kExperts, tile_rows},
        codes_(static_cast<std::size_t>(rows * a.matmul.x.code_stride)),
        scales_(static_cast<std::size_t>(rows * a.matmul.x.scale_stride)),
        sums_(static_cast<std::size_t>(rows * std::max<std::int64_t>(1, a.matmul.x.sum_stride))),
        x_(a.matmul.x) {
    launch_group_rows({a.choice, rows, groups_}, test_stream());
    find_places(a, rows);
    x_.codes = codes_.data();
    x_.scales = scales_.data();
    if (x_.sums != nullptr) x_.sums = sums_.data();
    // If x has a row for each (token, expert), each row counts as a token that selects one expert.
    std::vector<std::int32_t> choice(static_cast<std::size_t>(rows) * 32);
    for (std::size_t r = 0; r < places.size(); ++r) choice[r * 32 + 2] = places[r];
    const DeviceArray<std::int32_t> there(choice);
    const ExpertChoice of_rows = {reinterpret_cast<float*>(there.data()), 32, 1};
    launch_group_inputs({a.matmul.x, x_, a.has_row_each ? of_rows : a.choice, rows}, test_stream());
    rt::synchronize(test_stream());
  }

  std::vector<float> multiply(ExpertMatmul a, bool by_tiles, std::ptrdiff_t numbers) const {
    const DeviceArray<float> out(std::vector<float>(static_cast<std::size_t>(numbers), -5.0f));
    a.matmul.x = x_;
    a.matmul.out.values = out.data();
    a.in_groups = true;
    if (by_tiles) launch_expert_gemm(a, groups_, test_stream());
    if (!by_tiles) launch_expert_matmul(a, test_stream());
    return out.host();
  }

 private:
  void find_places(const ExpertMatmul& a, int rows) {
    const std::size_t words = static_cast<std::size_t>(rows / kActive) * 32;
    std::vector<std::int32_t> choice(words);
    rt::copy_to_host(choice.data(), a.choice.rows, words * 4, test_stream());
    rt::synchronize(test_stream());
    const std::vector<std::int32_t> lists = lists_.host();
    std::vector<int> seen(kExperts);
    for (int r = 0; r < rows; ++r) {
      const auto at = static_cast<std::size_t>(r / kActive * 32 + r % kActive);
      const auto expert = static_cast<std::size_t>(choice[at]);
      const std::int32_t place = choice[at + 2 * kActive];
      EXPECT_EQ(place, lists[expert] + seen[expert]++) << "row " << r;
      EXPECT_LT(place, lists[expert + 1]) << "row " << r;
      places.push_back(place);
    }
    EXPECT_EQ(lists[kExperts], rows);
  }

  DeviceArray<std::int32_t> lists_;
  ExpertGroups groups_;
  DeviceArray<std::int8_t> codes_;
  DeviceArray<float> scales_;
  DeviceArray<std::int32_t> sums_;
  CodeRows x_;
};

TEST_P(ExpertLinears, RowsHaveTheirExpertsValues) {
  const IntCase& c = GetParam();
  const bool paired = is_gated(c.finish);
  // For paired outputs x has a row for each token, otherwise a row for each (token, expert).
  const int tokens = paired ? c.tokens : c.tokens / kActive, rows = tokens * kActive;
  std::vector<std::unique_ptr<IntMatmulData>> experts;
  std::vector<CodeSegment> segments;
  for (unsigned e = 0; e < kExperts; ++e) {
    experts.push_back(std::make_unique<IntMatmulData>(c, 40 + 17 * e));
    if (e > 0) experts[e]->take_tokens(*experts[0]);
    for (std::size_t i = 0; i < c.rows.size(); ++i) segments.push_back(experts[e]->segment(i));
  }
  std::vector<float> choice(static_cast<std::size_t>(tokens) * 32);
  const auto expert_of = [](int token, int i) { return i == 0 ? token % 2 : 2; };
  for (int t = 0; t < tokens; ++t) {
    for (int i = 0; i < kActive; ++i) {
      const std::int32_t id = expert_of(t, i);
      std::memcpy(&choice[static_cast<std::size_t>(t * 32 + i)], &id, sizeof id);
    }
  }
  const DeviceArray<CodeSegment> segments_there(segments);
  const DeviceArray<float> choice_there(choice);
  const int outputs = c.rows[0];
  const std::int64_t stride = float_stride(outputs);
  const DeviceArray<float> out(std::vector<float>(static_cast<std::size_t>(rows * stride), -5.0f));
  ExpertMatmul a;
  a.matmul = experts[0]->arguments();
  a.matmul.out = {out.data(), stride};
  a.segments = segments_there.data();
  a.choice = {choice_there.data(), 32, kActive};
  a.rows = rows;
  a.has_row_each = !paired;
  write_late({choice_there.bytes(), out.bytes()});
  launch_expert_matmul(a, test_stream());
  const std::vector<float> found = out.host();
  for (int r = 0; r < rows; ++r) {
    const IntMatmulData& expert =
        *experts[static_cast<std::size_t>(expert_of(r / kActive, r % kActive))];
    const int input = paired ? r / kActive : r;
    for (int row = 0; row < outputs; ++row) {
      const float up = paired ? expert.value(input, 1, row) : 0.0f;
      ASSERT_EQ(found[static_cast<std::size_t>(r * stride + row)],
                finished_value(c.finish, expert.value(input, 0, row), up, 0))
          << "row " << r << ", column " << row;
    }
    for (std::int64_t at = outputs; at < stride; ++at) {
      ASSERT_EQ(found[static_cast<std::size_t>(r * stride + at)], -5.0f);
    }
  }
  for (const int tile_rows : {0, kSmallExpertTile, kExpertTile}) {  // 0: no tiles
    const bool by_tiles = tile_rows > 0;
    if (by_tiles && !has_expert_gemm(a.matmul)) continue;
    const InGroups moved(a, rows, std::max(tile_rows, 1));  // must give the same bits
    const std::vector<float> in_groups = moved.multiply(a, by_tiles, std::ssize(found));
    for (int r = 0; r < rows; ++r) {
      const auto from = found.begin() + r * stride;
      const auto place = in_groups.begin() + moved.places[static_cast<std::size_t>(r)] * stride;
      ASSERT_TRUE(std::equal(from, from + stride, place))
          << "row " << r << ", tiles of " << tile_rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ExpertLinears,
    testing::Values(IntCase{8, false, 128, 128, 3, 300, {24, 24}, Finish::swiglu},
                    IntCase{8, false, 0, 0, 4, 200, {40}},
                    IntCase{8, true, 0, 0, 3, 128, {9, 9}, Finish::swiglu},
                    IntCase{8, false, 32, 32, 2, 96, {40}},
                    IntCase{4, false, 128, 128, 4, 640, {70}},
                    IntCase{4, true, 32, 128, 2, 300, {33, 33}, Finish::swiglu},
                    IntCase{3, false, 128, 0, 2, 300, {40}},
                    IntCase{3, true, 64, 128, 4, 200, {20}},
                    IntCase{2, true, 64, 128, 4, 200, {20}},
                    IntCase{2, true, 128, 128, 2, 200, {20, 20}, Finish::swiglu},
                    IntCase{4, false, 32, 128, 3, 300, {33, 33}, Finish::swiglu, false, true},
                    IntCase{4, false, 16, 128, 2, 200, {40}, Finish::store, false, true},
                    IntCase{4, false, 128, 128, 150, 128, {70}}));

TEST(AddExperts, ProductsAreAddedInAscendingOrder) {
  constexpr int kTokens = 3, kWidth = 150, kChosen = 3, kRows = kTokens * kChosen;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  // A choice has places that permute the rows, and the weight of a shared expert.
  std::vector<float> x(kTokens * 192), products((kRows + kTokens) * 160), choice(kTokens * 32);
  for (auto* all : {&x, &products, &choice}) {
    for (float& value : *all) value = normal(random);
  }
  const auto place_of = [](int row) { return (row * 4 + 2) % kRows; };
  std::vector<float> moved(products);
  for (int row = 0; row < kRows; ++row) {
    const std::int32_t place = place_of(row);
    std::memcpy(&choice[static_cast<std::size_t>(row / kChosen * 32 + 2 * kChosen + row % kChosen)],
                &place, sizeof place);
    std::copy_n(products.begin() + row * 160, 160, moved.begin() + place * 160);
  }
  for (const bool has_shared : {false, true}) {
    const DeviceArray<float> x_there(x), x_moved(x), products_there(products), moved_there(moved),
        choice_there(choice);
    write_late({x_there.bytes(), products_there.bytes(), choice_there.bytes()});
    const ExpertChoice chosen = {choice_there.data(), 32, kChosen};
    launch_add_experts({{x_there.data(), 192},
                        {products_there.data(), 160},
                        chosen,
                        false,
                        has_shared,
                        kTokens,
                        kWidth},
                       test_stream());
    launch_add_experts({{x_moved.data(), 192},
                        {moved_there.data(), 160},
                        chosen,
                        true,
                        has_shared,
                        kTokens,
                        kWidth},
                       test_stream());
    EXPECT_EQ(x_moved.host(), x_there.host());
    const std::vector<float> found = x_there.host();
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t c = 0; c < 192; ++c) {
        float want = x[t * 192 + c];
        for (std::size_t i = 0; i < kChosen && c < kWidth; ++i) {
          const float product =
              choice[t * 32 + kChosen + i] * products[(t * kChosen + i) * 160 + c];
          want = want + product;
        }
        if (has_shared && c < kWidth) {
          const float product = choice[t * 32 + 3 * kChosen] * products[(kRows + t) * 160 + c];
          want = want + product;
        }
        ASSERT_EQ(found[t * 192 + c], want);
      }
    }
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU
