// Steps on every backend. A replayed step must use the current lists of ids, positions and rows.
#include "backends.h"

#include "base/error.h"

namespace leq {
namespace {

constexpr std::int64_t kRows = 16, kWidth = 40;

// Computes last[i] = table[ids[rows[i]]] + table[positions[rows[i]]], then the codes of this row.
class StepConformance : public test::Conformance {
 protected:
  void SetUp() override {
    table_ = upload_table(numbers_);
    linear_.name = "reader";
    linear_.act = ActKind::row;
    linear_.inputs = kWidth;
    linear_.segments.resize(1);
    linear_.segments[0].weight.scheme = require_scheme("int8", "test");
    linear_.segments[0].weight.act = ActKind::row;
    norm_.gain = upload_vector(std::vector<float>(kWidth, 1.0f));
    norm_.width = kWidth;
    make_rows(2);
  }
  WeightView upload_table(const std::vector<float>& numbers) {
    return upload_weight(
        pack_weight(numbers, kRows, kWidth, QuantScheme{}, ActKind::none, "table"));
  }

  // Runs a step with one position of one sequence per id; some of these rows have logits.
  void run(std::int64_t position, const void* owner = nullptr) {
    runs_.clear();
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      runs_.push_back(
          {static_cast<std::int32_t>(i), static_cast<std::int64_t>(i), 1, position, pages_});
    }
    Step step;
    step.batch = {std::ssize(ids_), runs_};
    step.lists = {ids_, positions_, rows_};
    step.context = 4096;
    step.owner = {x_.values, owner};
    backend->step(step, [&] {
      ++called_;
      backend->embed({table_, ids_, &table_, positions_}, x_);
      backend->gather_rows(x_, rows_, last_);
      backend->norm(x_, std::ssize(ids_), norm_, out_);
    });
  }
  void make_rows(std::int64_t count) {
    x_ = Rows(), last_ = Rows(), out_ = Rows();
    x_ = backend->allocate_rows(count, kWidth, {});
    last_ = backend->allocate_rows(count, kWidth, {});
    RowsFormat format = backend->layout().format_for(linear_);
    format.values = true;
    out_ = backend->allocate_rows(count, kWidth, format);
  }
  void expect_sums(const char* when) {
    const auto found = values_of(last_, std::ssize(rows_));
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto row = static_cast<std::size_t>(rows_[i]);
      const auto a = static_cast<std::size_t>(ids_[row]) * kWidth;
      const auto b = static_cast<std::size_t>(positions_[row]) * kWidth;
      for (std::size_t k = 0; k < kWidth; ++k) {
        ASSERT_EQ(found[i * kWidth + k], numbers_[a + k] + numbers_[b + k])
            << when << ", row " << row << ", column " << k;
      }
    }
  }

  std::vector<float> numbers_ = test::random_numbers(kRows * kWidth, 5);
  WeightView table_;
  Linear linear_;
  Norm norm_;
  Rows x_, last_, out_;
  std::vector<std::int32_t> ids_ = {0, 0}, positions_ = {0, 0}, rows_ = {0};
  std::vector<std::int32_t> pages_ = std::vector<std::int32_t>(64, 0);
  std::vector<SequenceRun> runs_;
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

// A GPU records steps of up to 256 rows. All rows but one have logits; their order changes.
TEST_P(StepConformance, OfManyRowsFollowTheirLists) {
  for (const std::int32_t rows : {65, 256, 257}) {
    make_rows(rows);
    ids_.resize(static_cast<std::size_t>(rows));
    positions_.resize(ids_.size());
    rows_.resize(ids_.size() - 1);
    const StepCounts before = backend->step_counts();
    for (std::int32_t step = 0; step < 4; ++step) {
      for (std::int32_t i = 0; i < rows; ++i) {
        ids_[static_cast<std::size_t>(i)] = static_cast<std::int32_t>((5 * i + step) % kRows);
        positions_[static_cast<std::size_t>(i)] =
            static_cast<std::int32_t>((i / 16 + 3 * step) % kRows);
        if (i > 0) rows_[static_cast<std::size_t>(i - 1)] = (i * 7 + step) % rows;
      }
      run(step);
      expect_sums("step");
    }
    if (GetParam().name != "sim") continue;
    const bool recorded = rows <= 256;
    EXPECT_EQ(backend->step_counts().recorded - before.recorded, recorded ? 1 : 0) << rows;
    EXPECT_EQ(backend->step_counts().replayed - before.replayed, recorded ? 2 : 0) << rows;
  }
}

// More kinds of steps run than are kept: the backend must drop the oldest, not those in use.
TEST_P(StepConformance, KeepTheRecordingsThatAreInUse) {
  const std::vector<char> owners(200);
  const auto run_thrice = [&](const char& owner) {
    for (int i = 0; i < 3; ++i) run(0, &owner);
  };
  run_thrice(owners[0]);
  for (std::size_t i = 1; i < owners.size(); ++i) {
    run_thrice(owners[i]);
    run(0, &owners[0]);
  }
  expect_sums("at last");
  if (GetParam().name != "sim") return;
  EXPECT_EQ(backend->step_counts().recorded, std::ssize(owners));
  EXPECT_EQ(called_, 2 * std::ssize(owners));
  run_thrice(owners[1]);
  EXPECT_EQ(called_, 2 * std::ssize(owners) + 2);
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

// The context grows past a span, and rows are allocated anew, maybe at an address used before.
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
  numbers[9 * kWidth + 4] = 3e38f;  // twice this is infinity
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
