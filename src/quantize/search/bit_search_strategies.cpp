#include "quantize/search/bit_search_strategies.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

namespace leq {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTolerance = 1e-4;  // relative decrease of J that counts as an improvement
constexpr int kSweeps = 3;
constexpr std::size_t kGridKept = 32;
constexpr std::size_t kEndBlocks = 2;  // blocks at each end that `grid` may raise by one level

std::size_t index(int value) { return static_cast<std::size_t>(value); }

Assignment uniform(const SearchMeter& meter, int choice) {
  return Assignment(meter.problem().units.size(), static_cast<std::uint8_t>(choice));
}

// KL of a uniform assignment, which every search measures first.
double uniform_kl(SearchMeter& meter, int choice) {
  const auto point = meter.measure(uniform(meter, choice));
  return point ? point->kl : 0.0;
}

std::int64_t last_layer(const SearchProblem& problem) {
  std::int64_t last = 0;
  for (const SearchUnit& unit : problem.units) last = std::max(last, unit.layer);
  return last;
}

// Additive losses that match the measured KL of the uniform points. The KL of all units at a
// choice, minus that at 8 bits, is divided among units in proportion to their proxies (without
// proxies: to their sizes). 0 at 8 bits. The uniform points must have been measured.
LossTable losses_from_uniform(SearchMeter& meter) {
  const auto& units = meter.problem().units;
  LossTable losses(units.size(), std::array<double, kChoices>{});
  for (int choice = 0; choice < kEightBits; ++choice) {
    const std::size_t c = index(choice);
    const double total = std::max(uniform_kl(meter, choice) - uniform_kl(meter, kEightBits), 0.0);
    const bool proxies =
        std::ranges::all_of(units, [&](const SearchUnit& unit) { return unit.proxy[c] > 0; });
    double sum = 0;
    for (std::size_t l = 0; l < units.size(); ++l) {
      losses[l][c] = proxies ? units[l].proxy[c] : static_cast<double>(units[l].params);
      sum += losses[l][c];
    }
    for (auto& row : losses) row[c] *= total / sum;
  }
  return losses;
}

// KL predicted by the table: the KL of all units at 8 bits plus the losses.
double predicted_kl(const LossTable& losses, double kl_at_eight, const Assignment& assignment) {
  double kl = kl_at_eight;
  for (std::size_t l = 0; l < assignment.size(); ++l) kl += losses[l][assignment[l]];
  return kl;
}

double predicted_objective(SearchMeter& meter, const LossTable& losses,
                           const Assignment& assignment) {
  return meter.objective(predicted_kl(losses, uniform_kl(meter, kEightBits), assignment),
                         bytes_of(meter.problem(), assignment));
}

// Moves one unit other than `fixed` by one level: the one with the least loss per byte saved, or
// with the largest gain per byte spent. Returns false if no move helps.
bool shift_one(SearchMeter& meter, const LossTable& losses, std::size_t fixed, int direction,
               Assignment& assignment) {
  double best_rate = kInfinity;
  std::size_t best_unit = fixed;
  const auto& units = meter.problem().units;
  for (std::size_t m = 0; m < units.size(); ++m) {
    const int next = assignment[m] + direction;
    if (m == fixed || next < 0 || next >= kChoices) continue;
    const std::size_t from = assignment[m], to = index(next);
    const double bytes = std::abs(static_cast<double>(units[m].bytes[to]) -
                                  static_cast<double>(units[m].bytes[from]));
    const double rate = (losses[m][to] - losses[m][from]) / bytes;
    Assignment moved = assignment;
    moved[m] = static_cast<std::uint8_t>(next);
    if (direction > 0 && (rate >= 0 || !meter.fits(moved))) continue;
    if (rate < best_rate) {
      best_rate = rate;
      best_unit = m;
    }
  }
  if (best_unit == fixed) return false;
  assignment[best_unit] = static_cast<std::uint8_t>(assignment[best_unit] + direction);
  return true;
}

// Returns `assignment` with one unit at another choice. Under a limit, lowers other units until it
// fits, then raises units to use the bytes left, by predicted losses. Empty if this is impossible.
Assignment moved(SearchMeter& meter, const LossTable& losses, Assignment assignment,
                 std::size_t unit, int choice) {
  assignment[unit] = static_cast<std::uint8_t>(choice);
  if (!meter.options().target_bytes) return assignment;
  while (!meter.fits(assignment)) {
    if (!shift_one(meter, losses, unit, -1, assignment)) return {};
  }
  while (shift_one(meter, losses, unit, +1, assignment)) continue;
  return assignment;
}

// Measures a candidate; if it is better, makes it current. Returns false if the budget is spent.
bool try_step(SearchMeter& meter, const Assignment& candidate, SearchPoint& current,
              bool& improved) {
  if (candidate.empty()) return true;
  const auto point = meter.measure(candidate);
  if (!point) return false;
  if (point->objective < current.objective - kTolerance * std::abs(current.objective)) {
    current = *point;
    improved = true;
  }
  return true;
}

// The point at which a descent starts: `assignment`, or the best point if that is better.
SearchPoint start_at(SearchMeter& meter, const Assignment& assignment) {
  const auto point = assignment.empty() ? std::nullopt : meter.measure(assignment);
  return point && point->objective <= meter.best().objective ? *point : meter.best();
}

// Tries single moves from the current point in the order of predicted objectives, until no move
// improves it (a coordinate-wise local optimum) or the budget is spent.
void repair(SearchMeter& meter, const LossTable& losses, SearchPoint current) {
  for (bool improved = true; improved;) {
    improved = false;
    std::vector<std::pair<double, Assignment>> moves;
    std::set<Assignment> listed;
    for (std::size_t l = 0; l < meter.problem().units.size(); ++l) {
      for (int choice = 0; choice < kChoices; ++choice) {
        if (choice == current.assignment[l]) continue;
        Assignment candidate = moved(meter, losses, current.assignment, l, choice);
        if (candidate.empty() || meter.measured(candidate)) continue;
        if (!listed.insert(candidate).second) continue;
        moves.emplace_back(predicted_objective(meter, losses, candidate), std::move(candidate));
      }
    }
    std::ranges::sort(moves);
    for (const auto& [predicted, candidate] : moves) {
      if (!try_step(meter, candidate, current, improved)) return;
      if (improved) break;
    }
  }
}

// The assignment with the least loss under the limit or, without limit, with the least J.
Assignment best_by(SearchMeter& meter, const LossTable& losses) {
  return solve_knapsack(meter.problem().units, losses, meter.price(), meter.limit());
}

// Measures D_l(b) while the budget lasts, first at 3 bits of every unit. The other losses are
// estimated from the uniform points and the proxies, scaled by the measurement of the unit.
LossTable measure_losses(SearchMeter& meter) {
  const LossTable guess = losses_from_uniform(meter);
  LossTable losses = guess;
  std::vector<double> scale(losses.size(), 0.0);
  // A tenth of the budget is reserved for measuring complete assignments.
  const int kept = std::max(2, meter.options().evaluations / 10);
  for (const int choice : {1, 0, 2}) {
    for (std::size_t l = 0; l < losses.size(); ++l) {
      const std::size_t c = index(choice);
      const bool may = meter.used() + kept < meter.options().evaluations;
      const auto loss = may ? meter.measure_alone(l, choice) : std::nullopt;
      if (loss) {
        losses[l][c] = std::max(*loss, 0.0);
        if (choice == 1 && guess[l][c] > 0) scale[l] = losses[l][c] / guess[l][c];
      } else if (scale[l] > 0) {
        losses[l][c] = guess[l][c] * scale[l];
      }
    }
  }
  return losses;
}

}  // namespace

LossTable search_grid(SearchMeter& meter) {
  const auto& units = meter.problem().units;
  LossTable losses = losses_from_uniform(meter);
  std::map<std::string, std::size_t> kinds;
  for (const SearchUnit& unit : units) kinds.emplace(unit.kind, kinds.size());
  const auto last = static_cast<std::size_t>(last_layer(meter.problem()));
  std::size_t combinations = 1;
  for (std::size_t k = 0; k < kinds.size(); ++k) combinations *= kChoices;
  std::set<std::pair<double, Assignment>> ranked;
  for (std::size_t combination = 0; combination < 2 * combinations; ++combination) {
    const bool raise_ends = combination >= combinations;
    Assignment assignment;
    for (const SearchUnit& unit : units) {
      std::size_t digits = combination % combinations;
      for (std::size_t k = kinds.at(unit.kind); k > 0; --k) digits /= kChoices;
      const auto layer = static_cast<std::size_t>(unit.layer);
      const bool end = layer < kEndBlocks || layer + kEndBlocks > last;
      const std::size_t choice = digits % kChoices + (raise_ends && end ? 1 : 0);
      assignment.push_back(static_cast<std::uint8_t>(std::min<std::size_t>(choice, kEightBits)));
    }
    if (!meter.fits(assignment)) continue;
    ranked.emplace(predicted_objective(meter, losses, assignment), std::move(assignment));
    if (ranked.size() > kGridKept) ranked.erase(std::prev(ranked.end()));
  }
  for (const auto& [predicted, assignment] : ranked) {
    if (!meter.measure(assignment)) break;
  }
  return losses;
}

LossTable search_entropy(SearchMeter& meter) {
  const auto& units = meter.problem().units;
  LossTable losses = losses_from_uniform(meter);
  const std::int64_t last = last_layer(meter.problem());
  // A unit of entropy E gets argmin_b |b - (E - c)| bits, which change where E - c is in kMiddles.
  constexpr std::array<double, 3> kMiddles = {2.5, 3.5, 6.0};
  std::set<double> offsets;
  for (const SearchUnit& unit : units) {
    for (const double middle : kMiddles) offsets.insert(unit.entropy - middle);
  }
  Assignment best;
  double best_objective = kInfinity;
  for (const double offset : offsets) {
    Assignment assignment;
    for (const SearchUnit& unit : units) {
      // On ties fewer bits are chosen, so that each offset c in the set lowers one unit's width.
      const auto above = std::ranges::count_if(
          kMiddles, [&](double middle) { return unit.entropy - middle > offset; });
      const bool end = unit.layer == 0 || unit.layer == last;
      assignment.push_back(
          static_cast<std::uint8_t>(end ? std::max<std::int64_t>(above, 2) : above));
    }
    if (!meter.fits(assignment)) continue;
    // With a limit, takes the first assignment that fits (the largest); otherwise the best one.
    const double objective = predicted_objective(meter, losses, assignment);
    if (objective < best_objective) {
      best_objective = objective;
      best = assignment;
    }
    if (meter.options().target_bytes) break;
  }
  if (!best.empty()) meter.measure(best);
  return losses;
}

LossTable search_greedy(SearchMeter& meter) {
  LossTable losses = losses_from_uniform(meter);
  const auto& units = meter.problem().units;
  std::vector<std::size_t> order(units.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t l) { return units[l].params; });
  SearchPoint current = start_at(meter, uniform(meter, 2));
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    bool changed = false;
    for (const std::size_t l : order) {
      const Assignment from = current.assignment;
      for (int choice = 0; choice < kChoices; ++choice) {
        if (choice == from[l]) continue;
        if (!try_step(meter, moved(meter, losses, from, l, choice), current, changed)) {
          return losses;
        }
      }
    }
    if (!changed) break;
  }
  return losses;
}

LossTable search_sens(SearchMeter& meter) {
  LossTable losses = measure_losses(meter);
  repair(meter, losses, start_at(meter, best_by(meter, losses)));
  return losses;
}

}  // namespace leq
