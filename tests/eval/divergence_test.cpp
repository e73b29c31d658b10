// Compares KL divergence with plain sums in double; tests its statistics and its files.
#include "eval/divergence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "temporary_folder.h"

namespace leq {
namespace {

constexpr std::int64_t kVocab = 777;

std::vector<float> random_logits(Random& random, float spread) {
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = spread * random.normal();
  return logits;
}

std::vector<float> moved(const std::vector<float>& logits, Random& random, float spread) {
  std::vector<float> other = logits;
  for (float& logit : other) logit += spread * random.normal();
  return other;
}

// Computes probabilities by definition; the logits are too small to overflow.
std::vector<long double> naive_softmax(const std::vector<float>& logits) {
  std::vector<long double> result;
  long double sum = 0;
  for (const float logit : logits) {
    result.push_back(std::exp(static_cast<long double>(logit)));
    sum += result.back();
  }
  for (long double& value : result) value /= sum;
  return result;
}

TEST(Divergence, RowEqualsTheDefinition) {
  Random random(1);
  for (int round = 0; round < 20; ++round) {
    const auto base = random_logits(random, 3.0f);
    const auto other = moved(base, random, 0.3f);
    const std::int64_t target = random.below(kVocab);
    const auto p = naive_softmax(base), q = naive_softmax(other);
    long double kl = 0;
    for (std::size_t i = 0; i < p.size(); ++i) kl += p[i] * std::log(p[i] / q[i]);
    BaseDistribution distribution;
    fill_base(base, target, distribution);
    const RowDivergence row = compare(distribution, other, target);
    const auto t = static_cast<std::size_t>(target);
    EXPECT_NEAR(row.kl, static_cast<double>(kl), 1e-13);
    EXPECT_NEAR(row.nll, static_cast<double>(-std::log(q[t])), 1e-12);
    EXPECT_NEAR(row.nll_base, static_cast<double>(-std::log(p[t])), 1e-12);
    EXPECT_NEAR(row.delta_p(), static_cast<double>(q[t] - p[t]), 1e-13);
    EXPECT_EQ(row.same_top,
              std::ranges::max_element(p) - p.begin() == std::ranges::max_element(q) - q.begin());
  }
}

TEST(Divergence, OfAModelWithItselfIsZeroAndOtherVocabulariesAreRefused) {
  Random random(2);
  const auto logits = random_logits(random, 5.0f);
  Divergence divergence;
  std::vector<RowDivergence> rows;
  BaseDistribution base;
  for (int i = 0; i < 3; ++i) {
    fill_base(logits, i, base);
    rows.push_back(compare(base, logits, i));
  }
  divergence.add_window(rows);
  const DivergenceResult result = divergence.summarize(Protocol::hf);
  EXPECT_EQ(result.kl_mean.value, 0.0);
  EXPECT_EQ(result.same_top1.value, 1.0);
  EXPECT_EQ(result.delta_p_rms.value, 0.0);
  EXPECT_EQ(result.ppl_ratio.value, 1.0);
  EXPECT_THROW(compare(base, std::span(logits).first(5), 0), Error);
  EXPECT_THROW(Divergence().summarize(Protocol::hf), Error);
}

// Three windows of 2, 3 and 2 positions with numbers chosen by hand.
Divergence hand_made() {
  Divergence divergence;
  const auto row = [](double kl, bool same) {
    return RowDivergence{.kl = kl, .nll_base = 1.0, .nll = 1.0 + kl, .same_top = same};
  };
  divergence.add_window({row(0.1, true), row(0.3, false)});
  divergence.add_window({row(0.2, true), row(0.0, true), row(0.4, true)});
  divergence.add_window({row(0.5, false), row(0.6, true)});
  return divergence;
}

TEST(Divergence, ErrorsOfMeansAreThoseOfWindowSums) {
  const DivergenceResult result = hand_made().summarize(Protocol::hf_stride);
  EXPECT_EQ(result.scored, 7);
  EXPECT_EQ(result.windows, 3);
  const double mean = 2.1 / 7;
  EXPECT_NEAR(result.kl_mean.value, mean, 1e-15);
  // The windows' sums are 0.4, 0.6 and 1.1 for 2, 3 and 2 positions.
  const double d1 = 0.4 - 2 * mean, d2 = 0.6 - 3 * mean, d3 = 1.1 - 2 * mean;
  const double expected = std::sqrt(3.0 / 2 * (d1 * d1 + d2 * d2 + d3 * d3)) / 7;
  EXPECT_NEAR(result.kl_mean.error, expected, 1e-15);
  EXPECT_NEAR(result.same_top1.value, 5.0 / 7, 1e-15);
  EXPECT_NEAR(result.kl_median.value, 0.3, 1e-15);
  // In this case the log of the ratio of perplexities equals the mean KL.
  EXPECT_NEAR(result.ppl_ratio.value, std::exp(mean), 1e-14);
  EXPECT_NEAR(result.ppl_ratio.error, std::exp(mean) * expected, 1e-14);
  EXPECT_NEAR(result.ppl_base.value, std::exp(1.0), 1e-14);
  EXPECT_EQ(hand_made().window_kl().size(), 3u);
  EXPECT_NEAR(hand_made().window_kl()[2], 0.55, 1e-15);
}

// If all windows have one size, the error is that of the windows' means; with a single window, it
// is the error of the mean over its positions.
TEST(Divergence, EqualWindowsGiveTheErrorOfTheirMeans) {
  Random random(3);
  Divergence many, one;
  std::vector<double> means;
  std::vector<RowDivergence> all;
  for (int w = 0; w < 8; ++w) {
    std::vector<RowDivergence> rows(16);
    double sum = 0;
    for (RowDivergence& row : rows) sum += row.kl = random.uniform();
    means.push_back(sum / 16);
    all.insert(all.end(), rows.begin(), rows.end());
    many.add_window(rows);
  }
  one.add_window(all);
  const auto error_of = [](const auto& values, auto get) {
    double mean = 0, squares = 0;
    for (const auto& value : values) mean += get(value) / static_cast<double>(values.size());
    for (const auto& value : values) squares += (get(value) - mean) * (get(value) - mean);
    const auto n = static_cast<double>(values.size());
    return std::sqrt(squares / (n - 1) / n);
  };
  EXPECT_NEAR(many.summarize(Protocol::hf).kl_mean.error,
              error_of(means, [](double mean) { return mean; }), 1e-14);
  EXPECT_NEAR(one.summarize(Protocol::hf).kl_mean.error,
              error_of(all, [](const RowDivergence& row) { return row.kl; }), 1e-14);
}

// The q quantile of n uniform numbers has the standard deviation sqrt(q (1 - q) / n).
TEST(Divergence, ErrorsOfQuantilesAreTheirSpreadOverSamples) {
  constexpr int kSamples = 200, kRows = 4000;
  double error_median = 0, error_99 = 0, square_median = 0, square_99 = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    Random random(static_cast<std::uint64_t>(100 + sample));
    std::vector<RowDivergence> rows(kRows);
    for (RowDivergence& row : rows) row.kl = random.uniform();
    Divergence divergence;
    divergence.add_window(rows);
    const DivergenceResult result = divergence.summarize(Protocol::hf);
    error_median += result.kl_median.error / kSamples;
    error_99 += result.kl_p99.error / kSamples;
    square_median += std::pow(result.kl_median.value - 0.5, 2) / kSamples;
    square_99 += std::pow(result.kl_p99.value - 0.99, 2) / kSamples;
  }
  EXPECT_NEAR(error_median, std::sqrt(0.25 / kRows), 0.1 * std::sqrt(0.25 / kRows));
  EXPECT_NEAR(error_99, std::sqrt(0.0099 / kRows), 0.1 * std::sqrt(0.0099 / kRows));
  // 200 samples give a standard deviation to within 5 %; four times that is allowed.
  EXPECT_NEAR(error_median / std::sqrt(square_median), 1.0, 0.25);
  EXPECT_NEAR(error_99 / std::sqrt(square_99), 1.0, 0.25);
}

TEST(PairedDifference, IsThatOfTheDifferences) {
  const std::vector<double> first = {1.0, 2.0, 4.0}, second = {0.5, 1.0, 4.0};
  const Estimate difference = paired_difference(first, second);
  EXPECT_NEAR(difference.value, 0.5, 1e-15);
  // The differences 0.5, 1, 0 have variance 0.25; their mean has 0.25 / 3.
  EXPECT_NEAR(difference.error, std::sqrt(0.25 / 3), 1e-15);
  EXPECT_THROW(paired_difference(first, std::span(second).first(2)), Error);
}

class DivergenceBase : public ::testing::Test {
 protected:
  static DivergenceKey key(std::int64_t rows) {
    return {.protocol = "hf",
            .join = "none",
            .dataset_hash = "d",
            .text_sha256 = "t",
            .tokens_sha256 = "i",
            .window = 9,
            .stride = 9,
            .tokens = 100,
            .windows = 1,
            .scored = rows,
            .vocab = kVocab,
            .model = "m.leq",
            .type = "f32",
            .key_type = "f32",
            .value_type = "f32"};
  }

  std::string path() const { return (folder_.path() / "base.kl").string(); }

  void write(const std::vector<std::vector<float>>& logits) const {
    DivergenceBaseWriter writer(path(), key(std::ssize(logits)));
    std::vector<std::byte> row(writer.row_bytes());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      writer.encode(logits[i], static_cast<std::int64_t>(i), row);
      writer.add_rows(row);
    }
    writer.finish();
  }

  // Returns the error of reading these bytes as a base file, including all its rows.
  std::string refusal(const std::string& bytes) const {
    const auto copy = folder_.path() / "copy.kl";
    std::ofstream(copy, std::ios::binary) << bytes;
    try {
      const DivergenceBaseReader reader(copy);
      BaseDistribution row;
      for (std::int64_t i = 0; i < reader.key().scored; ++i) reader.decode(i, row);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  test::TemporaryFolder folder_;
};

// Flat, typical and steep distributions; the last one spans 4000 nats.
std::vector<std::vector<float>> rows_of_all_kinds() {
  Random random(5);
  std::vector<std::vector<float>> rows;
  for (const float spread : {0.0f, 0.01f, 1.0f, 3.0f, 8.0f, 30.0f, 1000.0f}) {
    for (int i = 0; i < 20; ++i) rows.push_back(random_logits(random, spread));
  }
  return rows;
}

TEST_F(DivergenceBase, KlOfAModelWithItselfThroughTheFileIsTiny) {
  const auto rows = rows_of_all_kinds();
  write(rows);
  const DivergenceBaseReader reader(path());
  EXPECT_EQ(reader.key().model, "m.leq");
  BaseDistribution base, exact;
  double largest = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto target = static_cast<std::int64_t>(i);
    reader.decode(target, base);
    fill_base(rows[i], target, exact);
    const RowDivergence row = compare(base, rows[i], target);
    largest = std::max(largest, row.kl);
    EXPECT_TRUE(row.same_top);
    EXPECT_EQ(row.nll_base, exact.nll);
    // The bound is stated in divergence.h; it applies twice, for rounding and for rescaling.
    for (std::size_t t = 0; t < exact.log_probs.size(); ++t) {
      if (exact.log_probs[t] < -kDeepestLogProb) continue;
      EXPECT_NEAR(base.log_probs[t], exact.log_probs[t], 6.2e-4);
    }
  }
  EXPECT_LE(largest, 4.7e-8);
  RecordProperty("largest_self_kl", std::to_string(largest));
}

// Measures the error that u16 codes cause, compared with KL computed without a file.
TEST_F(DivergenceBase, CodesCostLessThanAHundredThousandthOfANat) {
  Random random(6);
  std::vector<std::vector<float>> rows, others;
  for (int i = 0; i < 200; ++i) {
    rows.push_back(random_logits(random, 4.0f));
    others.push_back(moved(rows.back(), random, 0.3f));  // gives a mean KL of about 0.04
  }
  write(rows);
  const DivergenceBaseReader reader(path());
  BaseDistribution coded, exact;
  double mean_difference = 0, mean = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto target = static_cast<std::int64_t>(i);
    reader.decode(target, coded);
    fill_base(rows[i], target, exact);
    const double without = compare(exact, others[i], target).kl;
    mean += without / 200;
    mean_difference += (compare(coded, others[i], target).kl - without) / 200;
  }
  EXPECT_GT(mean, 0.02);
  EXPECT_LT(std::abs(mean_difference), 1e-5);
}

TEST_F(DivergenceBase, EveryTruncatedPrefixIsRefused) {
  Random random(7);
  write({random_logits(random, 3.0f), random_logits(random, 3.0f)});
  const std::string bytes = read_file(path(), 1u << 20);
  ASSERT_EQ(refusal(bytes), "");
  for (std::size_t size = 1; size < bytes.size(); size += size < 70 ? 1 : 41) {
    EXPECT_NE(refusal(bytes.substr(0, size)), "") << size;
  }
  EXPECT_NE(refusal(bytes + "x").find("expected "), std::string::npos);
}

TEST_F(DivergenceBase, EveryDamagedByteIsNoticed) {
  Random random(8);
  write({random_logits(random, 3.0f)});
  const std::string bytes = read_file(path(), 1u << 20);
  std::uint64_t json_bytes = 0, rows_offset = 0;
  std::memcpy(&json_bytes, bytes.data() + 12, 4);
  std::memcpy(&rows_offset, bytes.data() + 24, 8);
  for (std::size_t at = 0; at < bytes.size(); at += at < 70 ? 1 : 37) {
    if (at >= 64 + json_bytes && at < rows_offset) continue;  // spaces between the parts
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_NE(refusal(damaged), "") << at;
  }
  EXPECT_NE(refusal("Once upon a time, there was no base file at all in this tiny file.")
                .find("is no file of divergence_base"),
            std::string::npos);
}

TEST_F(DivergenceBase, OtherMeasurementsAreRefusedByName) {
  Random random(9);
  write({random_logits(random, 3.0f)});
  const DivergenceBaseReader reader(path());
  EXPECT_NO_THROW(reader.require_same(key(1)));
  const auto says = [&](const DivergenceKey& other, const std::string& part) {
    try {
      reader.require_same(other);
    } catch (const Error& error) {
      return std::string(error.what()).find(part) != std::string::npos;
    }
    return false;
  };
  DivergenceKey other = key(1);
  other.model = "another";  // the model is what is compared
  EXPECT_NO_THROW(reader.require_same(other));
  other = key(1);
  other.protocol = "hf-stride";
  EXPECT_TRUE(says(other, "protocol is hf in the base file and hf-stride in this run"));
  other = key(1);
  other.vocab = 3;
  EXPECT_TRUE(says(other, "vocab is 777 in the base file and 3 in this run"));
  other = key(1);
  other.tokens_sha256 = "j";
  EXPECT_TRUE(says(other, "tokens_sha256"));
  EXPECT_TRUE(says(key(2), "scored"));
}

TEST_F(DivergenceBase, AWriterThatStopsEarlyLeavesNoFile) {
  {
    DivergenceBaseWriter writer(path(), key(2));
    EXPECT_THROW(writer.finish(), Error);
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_EQ(folder_.names().size(), 0u);
}

}  // namespace
}  // namespace leq
