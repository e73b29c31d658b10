#include "generate/grammar/dead_ends.h"

#include <algorithm>
#include <cstddef>

namespace leq {
namespace {

using Places = std::vector<Grammar::Place>;

// For each place, the places that can reach an end if this place can.
std::vector<std::vector<std::int32_t>> places_before(const Places& places,
                                                     std::span<const std::int32_t> starts) {
  std::vector<std::vector<std::int32_t>> before(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto add_before = [&](std::int32_t to) {
      before[static_cast<std::size_t>(to)].push_back(static_cast<std::int32_t>(i));
    };
    for (const std::int32_t to : places[i].skips) add_before(to);
    for (const auto& edge : places[i].edges) add_before(edge.to);
    for (const auto& call : places[i].calls) {
      add_before(call.back);
      add_before(starts[static_cast<std::size_t>(call.rule)]);
    }
  }
  return before;
}

}  // namespace

bool drop_dead_ends(Places& places, std::span<const std::int32_t> starts, std::int32_t root) {
  std::vector<bool> ends(places.size(), false);
  const auto leads = [&](std::int32_t p) { return ends[static_cast<std::size_t>(p)]; };
  const auto edge_leads = [&](const Grammar::Edge& edge) { return leads(edge.to); };
  const auto call_leads = [&](const Grammar::Place::Call& call) {
    return leads(call.back) && leads(starts[static_cast<std::size_t>(call.rule)]);
  };
  const std::vector<std::vector<std::int32_t>> before = places_before(places, starts);
  std::vector<std::size_t> work;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].ends) work.push_back(i);
  }
  while (!work.empty()) {
    const std::size_t i = work.back();
    work.pop_back();
    if (ends[i]) continue;
    const Grammar::Place& here = places[i];
    ends[i] = here.ends || std::ranges::any_of(here.skips, leads) ||
              std::ranges::any_of(here.edges, edge_leads) ||
              std::ranges::any_of(here.calls, call_leads);
    if (ends[i]) work.insert(work.end(), before[i].begin(), before[i].end());
  }
  for (Grammar::Place& place : places) {
    std::erase_if(place.skips, [&](std::int32_t to) { return !leads(to); });
    std::erase_if(place.edges, [&](const auto& edge) { return !edge_leads(edge); });
    std::erase_if(place.calls, [&](const auto& call) { return !call_leads(call); });
  }
  return leads(starts[static_cast<std::size_t>(root)]);
}

}  // namespace leq
