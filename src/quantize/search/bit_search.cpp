#include "quantize/search/bit_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "quantize/search/bit_search_strategies.h"

namespace leq {
namespace {

struct StrategyRow {
  std::string_view name;
  SearchStrategy strategy;
  LossTable (*search)(SearchMeter&);
};
constexpr std::array<StrategyRow, 4> kStrategies = {{
    {"grid", SearchStrategy::grid, search_grid},
    {"entropy", SearchStrategy::entropy, search_entropy},
    {"greedy", SearchStrategy::greedy, search_greedy},
    {"sens", SearchStrategy::sens, search_sens},
}};

constexpr int kFewestEvaluations = 5;  // uniform points and one other assignment

void check(const SearchProblem& problem, const SearchOptions& options) {
  ensure(!problem.units.empty(), "search: the model has no unit to choose bits for");
  for (const SearchUnit& unit : problem.units) {
    ensure(unit.params > 0 && unit.bytes[0] > 0 && std::ranges::is_sorted(unit.bytes) &&
               unit.bytes[0] < unit.bytes[kEightBits],
           "search: unit ", unit.name, " has ", unit.params, " parameters in ", unit.bytes[0],
           " to ", unit.bytes[kEightBits], " bytes; sizes must grow with the bits");
  }
  require(options.evaluations >= kFewestEvaluations, Setting{"evaluations"}, " ",
          options.evaluations, ": expected ", kFewestEvaluations,
          " or more (four uniform models and a plan)");
  require(std::isfinite(options.lambda) && options.lambda >= 0, ErrorKind::bad_setting,
          "search: lambda ", options.lambda, ": expected 0 or more");
  const Assignment all_at_2_bits(problem.units.size(), 0);
  const std::uint64_t least = bytes_of(problem, all_at_2_bits);
  require(options.target_bytes.value_or(least) >= least, ErrorKind::bad_setting,
          "search: ", options.target_bytes.value_or(0),
          " bytes for the searched weights are too few: all at 2 bits take ", least, "; raise ",
          Setting{"target_size"}, " or ", Setting{"target_bpw"});
}

// KL of a uniform model of `bytes` bytes, by interpolation; see run_search.
double uniform_kl_at(std::span<const SearchPoint> uniform, std::uint64_t bytes) {
  std::vector<SearchPoint> sorted(uniform.begin(), uniform.end());
  std::ranges::sort(sorted, {}, &SearchPoint::bytes);
  double kl = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i].bytes <= bytes) kl = std::min(kl, sorted[i].kl);
    if (i + 1 == sorted.size() || sorted[i].bytes > bytes || sorted[i + 1].bytes <= bytes) continue;
    const double at = static_cast<double>(bytes - sorted[i].bytes) /
                      static_cast<double>(sorted[i + 1].bytes - sorted[i].bytes);
    kl = std::min(kl, std::lerp(sorted[i].kl, sorted[i + 1].kl, at));
  }
  return kl;
}

std::vector<SearchPoint> pareto_points(std::vector<SearchPoint> points) {
  std::ranges::sort(points, [](const SearchPoint& a, const SearchPoint& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.kl < b.kl;
  });
  std::vector<SearchPoint> front;
  for (const SearchPoint& point : points) {
    if (front.empty() || point.kl < front.back().kl) front.push_back(point);
  }
  return front;
}

bool is_uniform(const Assignment& assignment) {
  return std::ranges::count(assignment, assignment.front()) == std::ssize(assignment);
}

// Chooses between the best point of the search and the best uniform point.
void accept(const SearchProblem& problem, SearchResult& result) {
  const SearchPoint& found = result.found;
  const SearchPoint& uniform =
      *std::ranges::min_element(result.uniform, {}, &SearchPoint::objective);
  result.uniform_kl = uniform_kl_at(result.uniform, found.bytes);
  const auto kl_text = [](double kl) { return "KL " + fixed(kl, 6); };
  const std::string measured =
      kl_text(found.kl) + " at " + fixed(bpw_of(problem, found.assignment), 3) + " bits per weight";
  if (is_uniform(found.assignment)) {
    result.chosen = found;
    result.verdict = "the search found nothing better than " +
                     std::to_string(kSearchBits[found.assignment[0]]) +
                     " bits everywhere: " + measured;
    return;
  }
  result.accepted = found.kl < result.uniform_kl;
  result.chosen = result.accepted ? found : uniform;
  result.verdict = result.accepted ? "accepted: " : "refused: ";
  result.verdict += measured + ", a uniform model of this size has " + kl_text(result.uniform_kl);
  if (!result.accepted) {
    result.verdict += "; taking " + std::to_string(kSearchBits[uniform.assignment[0]]) +
                      " bits everywhere, " + kl_text(uniform.kl);
  }
}

}  // namespace

SearchStrategy parse_search_strategy(std::string_view name) {
  const auto* found = std::ranges::find(kStrategies, name, &StrategyRow::name);
  require(found != kStrategies.end(), Setting{"strategy"},
          ": expected grid | entropy | greedy | sens, found '", printable(name), "'");
  return found->strategy;
}

std::uint64_t bytes_of_bpw(const SearchProblem& problem, double bits_per_weight) {
  require(std::isfinite(bits_per_weight) && bits_per_weight > 0, Setting{"target_bpw"}, " ",
          bits_per_weight, ": expected a positive number of bits");
  double params = 0;
  for (const SearchUnit& unit : problem.units) params += static_cast<double>(unit.params);
  return static_cast<std::uint64_t>(params * bits_per_weight / 8);
}

std::uint64_t bytes_of(const SearchProblem& problem, const Assignment& assignment) {
  std::uint64_t bytes = 0;
  for (std::size_t l = 0; l < assignment.size(); ++l) {
    bytes += problem.units[l].bytes[assignment[l]];
  }
  return bytes;
}

double bpw_of(const SearchProblem& problem, const Assignment& assignment) {
  double params = 0;
  for (const SearchUnit& unit : problem.units) params += static_cast<double>(unit.params);
  return static_cast<double>(bytes_of(problem, assignment)) * 8 / params;
}

std::string bits_text(const Assignment& assignment) {
  std::string text;
  for (const std::uint8_t choice : assignment) {
    if (!text.empty()) text += ',';
    text += std::to_string(kSearchBits[choice]);
  }
  return text;
}

SearchResult run_search(const SearchProblem& problem, const SearchOptions& options) {
  check(problem, options);
  SearchMeter meter(problem, options);
  SearchResult result;
  for (int choice = kEightBits; choice >= 0; --choice) {
    const Assignment assignment(problem.units.size(), static_cast<std::uint8_t>(choice));
    const auto point = meter.measure(assignment);
    result.uniform[static_cast<std::size_t>(choice)] = point.value();
  }
  const auto* row = std::ranges::find(kStrategies, options.strategy, &StrategyRow::strategy);
  result.losses = row->search(meter);
  result.found = meter.best();
  result.trace = meter.trace();
  result.pareto = pareto_points(result.trace);
  result.evaluations = meter.used();
  accept(problem, result);
  return result;
}

}  // namespace leq
