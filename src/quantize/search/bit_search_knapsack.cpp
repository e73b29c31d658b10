#include "quantize/search/bit_search_knapsack.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace leq {
namespace {

constexpr std::size_t kFront = 4096;

// An assignment of choices to the first units.
struct Partial {
  std::uint64_t bytes = 0;
  double loss = 0;
  std::uint32_t before = 0;  // index of its predecessor in the previous unit's front
  std::uint8_t choice = 0;
};
using Front = std::vector<Partial>;

// Keeps the assignments that have less loss than all smaller ones, sorted by size.
Front pareto(Front all) {
  std::ranges::sort(all, [](const Partial& a, const Partial& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.loss < b.loss;
  });
  Front front;
  for (const Partial& one : all) {
    if (front.empty() || one.loss < front.back().loss) front.push_back(one);
  }
  return front;
}

// Keeps the last (and best) assignment of each interval of sizes, and the smallest one of all.
Front thin(const Front& front) {
  if (front.size() <= kFront) return front;
  const std::uint64_t lowest = front.front().bytes;
  const std::uint64_t cell = (front.back().bytes - lowest) / kFront + 1;
  Front kept = {front.front()};
  for (std::size_t i = 1; i < front.size(); ++i) {
    const bool last_of_cell = i + 1 == front.size() || (front[i].bytes - lowest) / cell !=
                                                           (front[i + 1].bytes - lowest) / cell;
    if (last_of_cell) kept.push_back(front[i]);
  }
  return kept;
}

Front extend(const Front& front, const SearchUnit& unit, const std::array<double, kChoices>& losses,
             std::uint64_t limit) {
  Front all;
  for (std::size_t i = 0; i < front.size(); ++i) {
    for (int choice = 0; choice < kChoices; ++choice) {
      const auto c = static_cast<std::size_t>(choice);
      const Partial next = {front[i].bytes + unit.bytes[c], front[i].loss + losses[c],
                            static_cast<std::uint32_t>(i), static_cast<std::uint8_t>(choice)};
      if (next.bytes <= limit && std::isfinite(next.loss)) all.push_back(next);
    }
  }
  return thin(pareto(std::move(all)));
}

}  // namespace

Assignment solve_knapsack(std::span<const SearchUnit> units, const LossTable& losses, double price,
                          std::uint64_t limit) {
  // Least bytes of the remaining units; with it, only assignments that can be completed are kept.
  std::vector<std::uint64_t> rest(units.size() + 1, 0);
  for (std::size_t l = units.size(); l-- > 0;) {
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (std::size_t c = 0; c < kChoices; ++c) {
      if (std::isfinite(losses[l][c])) least = std::min(least, units[l].bytes[c]);
    }
    if (least == std::numeric_limits<std::uint64_t>::max()) return {};
    rest[l] = rest[l + 1] + least;
  }
  if (rest[0] > limit) return {};
  std::vector<Front> fronts = {{Partial{}}};
  for (std::size_t l = 0; l < units.size(); ++l) {
    fronts.push_back(extend(fronts.back(), units[l], losses[l], limit - rest[l + 1]));
  }
  const auto cost = [&](const Partial& one) {
    return one.loss + price * static_cast<double>(one.bytes);
  };
  const Front& last = fronts.back();
  auto at = static_cast<std::size_t>(std::ranges::min_element(last, {}, cost) - last.begin());
  Assignment assignment(units.size());
  for (std::size_t l = units.size(); l-- > 0;) {
    const Partial& one = fronts[l + 1][at];
    assignment[l] = one.choice;
    at = one.before;
  }
  return assignment;
}

}  // namespace leq
