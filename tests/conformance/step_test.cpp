// Steps on every backend: a device that records them must follow the numbers of their lists.
#include "backends.h"

#include "base/error.h"

namespace leq {
namespace {

constexpr std::int64_t kRows = 16, kWidth = 40;

// last[i] = table[ids[rows[i]]] + table[positions[rows[i]]], then its codes.
class StepConformance : public test::Conformance {
 protected:
  void SetUp() override {
    table_ = upload_table(numbers_);
    linear_.name = "reader";
    linear_.act = ActKind::row;
    linear_.inputs = kWidth;
    linear_.segment_count = 1;
    linear_.segments[0].weight.scheme = require_scheme("int8", "test");
    linear_.segments[0].weight.act = ActKind::row;
    norm_.gain = upload_vector(std::vector<float>(kWidth, 1.0f));
    norm_.width = kWidth;
    RowsFormat format = backend->layout().format_for(linear_);
    format.values = true;
    out_ = backend->allocate_rows(2, kWidth, format);
  }
  WeightView upload_table(const std::vector<float>& numbers) {
    return upload_weight(
        pack_weight(numbers, kRows, kWidth, QuantScheme{}, ActKind::none, "table"));
  }

  // Two sequences at one position each; logits of one of them.
  void run(std::int64_t position) {
    for (std::size_t i = 0; i < 2; ++i) {
      runs_[i] = {static_cast<std::int32_t>(i), static_cast<std::int64_t>(i), 1, position, pages_};
    }
    Step step;
    step.batch = {2, runs_};
    step.lists = {ids_, positions_, rows_};
    step.context = 4096;
    step.owner = {x_.values, nullptr};
    backend->step(step, [&] {
      ++called_;
      backend->embed({table_, ids_, &table_, positions_}, x_);
      backend->gather_rows(x_, rows_, last_);
      backend->norm(x_, 2, norm_, out_);
    });
  }
  void expect_sums(const char* when) {
    const auto found = values_of(last_, 1);
    const auto row = static_cast<std::size_t>(rows_[0]);
    const auto a = static_cast<std::size_t>(ids_[row]) * kWidth;
    const auto b = static_cast<std::size_t>(positions_[row]) * kWidth;
    for (std::size_t k = 0; k < kWidth; ++k) {
      ASSERT_EQ(found[k], numbers_[a + k] + numbers_[b + k]) << when << ", column " << k;
    }
  }

  std::vector<float> numbers_ = test::random_numbers(kRows * kWidth, 5);
  WeightView table_;
  Linear linear_;
  Norm norm_;
  Rows x_ = backend->allocate_rows(2, kWidth, {}), last_ = backend->allocate_rows(1, kWidth, {});
  Rows out_;
  std::vector<std::int32_t> ids_ = {0, 0}, positions_ = {0, 0}, rows_ = {0};
  std::vector<std::int32_t> pages_ = std::vector<std::int32_t>(64, 0);
  std::vector<SequenceRun> runs_ = std::vector<SequenceRun>(2);
  int called_ = 0;
};

TEST_P(StepConformance, FollowTheirLists) {
  for (std::int32_t i = 0; i < 6; ++i) {
    ids_ = {i, 15 - i};
    positions_ = {3 + i, 2 * i};
    rows_ = {i % 2};
    run(i);
    expect_sums("step");
  }
  const StepCounts counts = backend->step_counts();
  EXPECT_EQ(called_ + counts.replayed, 6);
  if (GetParam().name == "sim") {
    EXPECT_EQ(counts.recorded, 1);
    EXPECT_EQ(called_, 2) << "once as it is, once recorded";
  }
}

TEST_P(StepConformance, CanBeToldNotToRecord) {
  backend->record_steps(false);
  for (std::int32_t i = 0; i < 3; ++i) {
    ids_ = {i, i};
    run(i);
    expect_sums("step");
  }
  EXPECT_EQ(called_, 3);
}

// Another length of the contexts, blocks that are new and perhaps where others were.
TEST_P(StepConformance, FollowLongerContextsAndNewMemory) {
  for (std::int32_t i = 0; i < 4; ++i) {
    ids_ = {i, i + 1};
    run(510 + i);
    expect_sums("past 512");
  }
  for (std::int32_t i = 0; i < 4; ++i) {
    last_ = Rows();
    last_ = backend->allocate_rows(1, kWidth, {});
    ids_ = {i + 7, i};
    run(100);
    expect_sums("new block");
  }
}

TEST_P(StepConformance, NameARowThatIsNotFiniteWheneverItComes) {
  std::vector<float> numbers = numbers_;
  numbers[9 * kWidth + 4] = 3e38f;  // twice that is infinity
  table_ = upload_table(numbers);
  for (std::int32_t i = 0; i < 6; ++i) {
    const bool bad = i > 0;
    ids_ = {i, 9};
    positions_ = {0, bad ? 9 : 3};
    std::string found;
    try {
      run(i);
      backend->synchronize();
    } catch (const Error& error) {
      found = error.what();
    }
    EXPECT_EQ(found.find("norm, token 1 of the batch") != std::string::npos, bad)
        << "step " << i << ": " << found;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, StepConformance, testing::ValuesIn(test::all_backends()),
                         test::case_name);

}  // namespace
}  // namespace leq
