// Tests the bit search on toy problems that are small enough to try every assignment.
#include "quantize/search/bit_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "errors.h"
#include "temporary_folder.h"

namespace leq {
namespace {

constexpr int kUnits = 6;

// Units differ in size and sensitivity; KL is additive, plus `coupling` for each pair of adjacent
// units that both have fewer than 4 bits.
struct Toy {
  explicit Toy(std::uint64_t seed, double coupling = 0, int units = kUnits) {
    Random random(seed);
    for (int l = 0; l < units; ++l) {
      SearchUnit unit;
      unit.name = "unit" + std::to_string(l);
      unit.params = 1000 * (1 + static_cast<std::int64_t>(random.below(8)));
      const double sensitivity = std::exp(2 * static_cast<double>(random.normal()));
      std::array<double, kChoices> loss = {};
      for (std::size_t c = 0; c < kChoices; ++c) {
        const int bits = kSearchBits[c];
        unit.bytes[c] = static_cast<std::uint64_t>(unit.params * bits / 8 + unit.params / 64);
        const double wobble = 0.5 + static_cast<double>(random.uniform());
        loss[c] = c == kEightBits ? 1e-6 : sensitivity * wobble * std::pow(4.0, -bits);
        unit.proxy[c] = loss[c] * (0.5 + static_cast<double>(random.uniform()));
      }
      // Makes the loss of fewer bits at least 1.2 times the loss of more bits.
      for (std::size_t c = 2; c-- > 0;) loss[c] = std::max(loss[c], 1.2 * loss[c + 1]);
      losses.push_back(loss);
      problem.units.push_back(unit);
    }
    problem.identity = "toy " + std::to_string(seed);
    problem.evaluate = [this, coupling](const Assignment& assignment) {
      ++calls;
      return kl(assignment, coupling);
    };
  }
  Toy(const Toy&) = delete;

  double kl(const Assignment& assignment, double coupling) const {
    double sum = 0;
    for (std::size_t l = 0; l < assignment.size(); ++l) {
      sum += losses[l][assignment[l]];
      if (l > 0 && assignment[l] < 2 && assignment[l - 1] < 2) sum += coupling;
    }
    return sum;
  }

  // Returns the smallest J over all assignments.
  double brute_force(const SearchOptions& options, double coupling = 0) const {
    double params = 0, best = INFINITY;
    for (const SearchUnit& unit : problem.units) params += static_cast<double>(unit.params);
    for (int code = 0; code < 1 << (2 * kUnits); ++code) {
      Assignment assignment;
      for (int l = 0; l < kUnits; ++l) {
        assignment.push_back(static_cast<std::uint8_t>(code >> (2 * l) & 3));
      }
      const std::uint64_t bytes = bytes_of(problem, assignment);
      if (options.target_bytes && bytes > *options.target_bytes) continue;
      double objective = kl(assignment, coupling);
      if (!options.target_bytes) {
        objective += options.lambda * 8 * static_cast<double>(bytes) / (16 * params);
      }
      best = std::min(best, objective);
    }
    return best;
  }

  std::vector<std::array<double, kChoices>> losses;
  SearchProblem problem;
  int calls = 0;
};

TEST(BitSearch, FindsTheBruteForceOptimumOfAnAdditiveProblem) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Toy toy(seed);
    SearchOptions options;
    for (const double lambda : {0.003, 0.05, 0.5}) {
      options.lambda = lambda;
      const double best = toy.brute_force(options);
      EXPECT_NEAR(run_search(toy.problem, options).found.objective, best, 1e-12 + 1e-9 * best)
          << "seed " << seed << ", lambda " << lambda;
    }
    for (const double bpw : {2.4, 3.1, 4.3, 6.0}) {
      options.target_bytes = bytes_of_bpw(toy.problem, bpw);
      const double best = toy.brute_force(options);
      EXPECT_NEAR(run_search(toy.problem, options).found.objective, best, 1e-12 + 1e-9 * best)
          << "seed " << seed << ", " << bpw << " bits";
    }
  }
}

TEST(BitSearch, BestObjectiveNeverRisesAndAnswersStayInBudgetAndLimit) {
  Toy toy(3, 0.002);
  SearchOptions options;
  options.target_bytes = bytes_of_bpw(toy.problem, 3.5);
  options.evaluations = 40;
  const SearchResult result = run_search(toy.problem, options);
  EXPECT_LE(result.evaluations, 40);
  EXPECT_EQ(toy.calls, result.evaluations);
  EXPECT_EQ(std::ssize(result.trace), result.evaluations);
  std::set<Assignment> different;
  for (std::size_t i = 1; i < result.trace.size(); ++i) {
    EXPECT_LE(result.trace[i].best_objective, result.trace[i - 1].best_objective);
    different.insert(result.trace[i].assignment);
  }
  EXPECT_EQ(different.size() + 1, result.trace.size()) << "measured something twice";
  EXPECT_LE(result.found.bytes, *options.target_bytes);
  EXPECT_LE(result.chosen.bytes, *options.target_bytes);
  EXPECT_EQ(result.found.objective, result.trace.back().best_objective);
}

TEST(BitSearch, PricesAtTheirEndsGiveAllEightAndAllTwo) {
  Toy toy(4);
  SearchOptions options;
  options.lambda = 0;
  const SearchResult dear = run_search(toy.problem, options);
  EXPECT_EQ(dear.chosen.assignment, Assignment(kUnits, kEightBits));
  options.lambda = 1e9;
  EXPECT_EQ(run_search(toy.problem, options).chosen.assignment, Assignment(kUnits, 0));
  EXPECT_NE(dear.verdict.find("8 bits everywhere"), std::string::npos) << dear.verdict;
}

TEST(BitSearch, SingleMovesImproveThePlanWhereLossesDoNotAdd) {
  int improved = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    constexpr double kCoupling = 0.03;
    Toy toy(seed, kCoupling);
    SearchOptions options;
    options.target_bytes = bytes_of_bpw(toy.problem, 3.4);
    options.evaluations = 200;
    const SearchResult result = run_search(toy.problem, options);
    // This plan uses only the knapsack.
    const Assignment plan =
        solve_knapsack(toy.problem.units, result.losses, 0, *options.target_bytes);
    const double before = toy.kl(plan, kCoupling);
    EXPECT_LE(result.found.kl, before);
    improved += result.found.kl < 0.999 * before;
    EXPECT_LE(result.found.kl, 1.5 * toy.brute_force(options, kCoupling)) << seed;
  }
  EXPECT_GE(improved, 3);
}

// The budget is too small to measure all D_l(b); proxies replace those not measured.
TEST(BitSearch, WorksWithFewMeasurements) {
  Toy toy(5, 0, 40);
  SearchOptions options;
  options.evaluations = 60;
  options.target_bytes = bytes_of_bpw(toy.problem, 3.5);
  const SearchResult result = run_search(toy.problem, options);
  EXPECT_LE(toy.calls, 60);
  EXPECT_TRUE(result.accepted) << result.verdict;
  EXPECT_LT(result.found.kl, 0.8 * result.uniform_kl);
}

std::vector<std::string> bits_of(const SearchResult& result) {
  std::vector<std::string> all = {bits_text(result.chosen.assignment)};
  for (const SearchPoint& point : result.trace) all.push_back(bits_text(point.assignment));
  return all;
}

TEST(BitSearch, TheSameProblemGivesTheSameAnswerAlsoAfterAnInterruption) {
  const test::TemporaryFolder folder;
  SearchOptions options;
  options.evaluations = 50;
  Toy toy(7, 0.01);
  options.target_bytes = bytes_of_bpw(toy.problem, 3.2);
  const SearchResult whole = run_search(toy.problem, options);
  const int calls = toy.calls;
  EXPECT_EQ(bits_of(run_search(toy.problem, options)), bits_of(whole));

  // The search is stopped by an exception halfway, then resumed.
  options.log = folder.path() / "log.json";
  SearchProblem stops = toy.problem;
  int left = calls / 2;
  stops.evaluate = [&](const Assignment& assignment) {
    require(left-- > 0, "stopped");
    return toy.problem.evaluate(assignment);
  };
  EXPECT_THROW(run_search(stops, options), Error);
  toy.calls = 0;
  const SearchResult resumed = run_search(toy.problem, options);
  EXPECT_EQ(toy.calls, calls - calls / 2);
  EXPECT_EQ(bits_of(resumed), bits_of(whole));
  EXPECT_EQ(resumed.found.kl, whole.found.kl);
  EXPECT_EQ(folder.names().size(), 1u);
  // From the log of a finished search, the result needs no measurement.
  toy.calls = 0;
  EXPECT_EQ(bits_of(run_search(toy.problem, options)), bits_of(whole));
  EXPECT_EQ(toy.calls, 0);
}

TEST(BitSearch, LogsOfOtherProblemsAndDamagedOnesAreRefused) {
  const test::TemporaryFolder folder;
  Toy toy(9), other(10);
  SearchOptions options;
  options.log = folder.path() / "log.json";
  options.evaluations = 5;
  run_search(toy.problem, options);
  EXPECT_THROW(run_search(other.problem, options), Error);
  const std::string whole = read_file(options.log, 1u << 20);
  const auto refusal = [&](const Toy& of) {
    return test::error_of([&] { run_search(of.problem, options); });
  };
  EXPECT_NE(refusal(other).find("log.json: was made for toy 9, this search is toy 10"),
            std::string::npos)
      << refusal(other);
  for (std::size_t size = 1; size + 2 < whole.size(); size += 37) {
    std::ofstream(options.log) << whole.substr(0, size);
    EXPECT_NE(refusal(toy).find("remove it or name another"), std::string::npos) << refusal(toy);
  }
  const Json log = parse_json(whole, "log");
  EXPECT_EQ(log.at("measured").size(), 5u);
  EXPECT_EQ(log.at("measured").at(0).at("bits"), Json(std::vector<int>(kUnits, 8)));
  for (const char* text :
       {"", "{", "[]", R"({"version":2})",
        R"({"version":1,"identity":"toy 9","measured":[{"bits":[5,2,2,2,2,2],"kl":1}]})",
        R"({"version":1,"identity":"toy 9","measured":[{"bits":[2],"kl":1}]})",
        R"({"version":1,"identity":"toy 9","measured":[{}]})"}) {
    std::ofstream(options.log) << text;
    EXPECT_THROW(run_search(toy.problem, options), Error) << text;
  }
}

// KL depends only on size, so uniform plans are best, and a plan that only seems better is refused.
TEST(BitSearch, APlanThatDoesNotBeatUniformIsRefused) {
  Toy toy(11);
  for (std::size_t l = 0; l < kUnits; ++l) toy.problem.units[l].params = 1000;
  for (auto& unit : toy.problem.units) unit.bytes = {250, 375, 500, 1000};
  toy.problem.evaluate = [&](const Assignment& assignment) {
    // KL is a quarter above the line between uniform models, and on the line at their sizes.
    double kl = 0;
    for (const std::uint8_t choice : assignment) {
      kl += std::array<double, kChoices>{0.4, 0.1, 0.02, 0.001}[choice] / kUnits;
    }
    const bool uniform = std::ranges::count(assignment, assignment[0]) == kUnits;
    return uniform ? kl : 1.25 * kl;
  };
  SearchOptions options;
  options.target_bytes = bytes_of_bpw(toy.problem, 3.8);
  const SearchResult result = run_search(toy.problem, options);
  EXPECT_FALSE(result.accepted);
  EXPECT_EQ(result.chosen.assignment, Assignment(kUnits, 1));
  EXPECT_TRUE(result.verdict.starts_with("refused: ")) << result.verdict;
  EXPECT_NE(result.verdict.find("taking 3 bits everywhere"), std::string::npos) << result.verdict;
  // 5 units have 4 bits and one has 2 or 3: the size is between those of uniform 3 and 4 bits.
  const double at = (static_cast<double>(result.found.bytes) - 6 * 375) / (6 * 125);
  EXPECT_NEAR(result.uniform_kl, 0.1 + at * (0.02 - 0.1), 1e-12);
}

TEST(BitSearch, ImpossibleRequestsAreNamed) {
  Toy toy(12);
  SearchOptions options;
  options.target_bytes = bytes_of_bpw(toy.problem, 1.9);
  EXPECT_THROW(run_search(toy.problem, options), Error);
  options.target_bytes = {};
  options.evaluations = 4;
  EXPECT_THROW(run_search(toy.problem, options), Error);
  EXPECT_THROW(bytes_of_bpw(toy.problem, NAN), Error);
}

// Compares with brute force, with sizes that do not divide evenly.
TEST(Knapsack, IsOptimalForSmallProblems) {
  Random random(20);
  for (int round = 0; round < 40; ++round) {
    std::vector<SearchUnit> units(5);
    LossTable losses(5);
    for (std::size_t l = 0; l < 5; ++l) {
      std::uint64_t bytes = 1 + random.below(50);
      for (std::size_t c = 0; c < kChoices; ++c) {
        units[l].bytes[c] = bytes += 1 + random.below(90);
        losses[l][c] = static_cast<double>(random.uniform());
      }
    }
    const std::uint64_t limit = 300 + random.below(900);
    double best = INFINITY;
    for (int code = 0; code < 1 << 10; ++code) {
      double loss = 0;
      std::uint64_t bytes = 0;
      for (std::size_t l = 0; l < 5; ++l) {
        const auto c = static_cast<std::size_t>(code >> (2 * l) & 3);
        loss += losses[l][c];
        bytes += units[l].bytes[c];
      }
      if (bytes <= limit) best = std::min(best, loss);
    }
    const Assignment found = solve_knapsack(units, losses, 0, limit);
    ASSERT_EQ(found.empty(), std::isinf(best));
    if (found.empty()) continue;
    double loss = 0;
    std::uint64_t bytes = 0;
    for (std::size_t l = 0; l < 5; ++l) {
      loss += losses[l][found[l]];
      bytes += units[l].bytes[found[l]];
    }
    EXPECT_LE(bytes, limit);
    EXPECT_NEAR(loss, best, 1e-12);
  }
}

}  // namespace
}  // namespace leq
