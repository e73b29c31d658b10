#include "base/topology.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/system.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace leq {
namespace {

constexpr int kMaxCores = 8192;  // limit of Linux
constexpr int kMaxNodes = 1024;
constexpr std::size_t kMaxBytes = 64 * 1024;  // maximum size of a file in /sys
constexpr int kLocalDistance = 10;
constexpr int kRemoteDistance = 20;

// Parses a number below kMaxCores that has only digits.
std::optional<int> small_number(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return {};
  const auto value = parse_int(text);
  return value && *value < kMaxCores ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

std::optional<std::string> small_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) && !file.eof()) return {};
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxBytes) return std::nullopt;
  return std::string(trim(text));
}

std::optional<std::vector<int>> number_list(std::string_view text) {
  std::vector<int> numbers;
  for (const std::string_view word : split(text, " ")) {
    if (word.empty()) continue;
    const auto number = small_number(word);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

Topology one_node(std::span<const int> usable) {
  return {{{0, {usable.begin(), usable.end()}, {kLocalDistance}}}};
}

// Reduces the system's list of distances (one for each of `online`) to the kept nodes.
void take_distances(const std::filesystem::path& folder, std::span<const int> online,
                    Topology& topology) {
  for (NumaNode& from : topology.nodes) {
    const auto text = small_file(folder / ("node" + std::to_string(from.id)) / "distance");
    const auto listed = text ? number_list(*text) : std::nullopt;
    for (const NumaNode& to : topology.nodes) {
      const auto at = static_cast<std::size_t>(std::ranges::find(online, to.id) - online.begin());
      int distance = from.id == to.id ? kLocalDistance : kRemoteDistance;
      if (listed && listed->size() == online.size()) distance = (*listed)[at];
      from.distances.push_back(distance);
    }
  }
}

}  // namespace

std::optional<std::vector<int>> parse_core_list(std::string_view text) {
  std::vector<int> cores;
  if (text.empty()) return cores;
  for (const std::string_view part : split(text, ",")) {
    const std::size_t dash = part.find('-');
    const auto first = small_number(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : small_number(part.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    if (!cores.empty() && *first <= cores.back()) return std::nullopt;
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
  }
  return cores;
}

const std::vector<int>& usable_core_list() {
  static const std::vector<int> kCores = [] {
    std::vector<int> cores = system::usable_cores();
    if (cores.empty()) cores.push_back(0);
    return cores;
  }();
  return kCores;
}

Topology read_topology(const std::filesystem::path& folder, std::span<const int> usable) {
  const auto text = small_file(folder / "online");
  const auto online = text ? parse_core_list(*text) : std::nullopt;
  if (!online || online->empty() || online->size() > kMaxNodes) return one_node(usable);
  Topology topology;
  std::size_t found = 0;
  for (const int id : *online) {
    const auto list = small_file(folder / ("node" + std::to_string(id)) / "cpulist");
    const auto cores = list ? parse_core_list(*list) : std::nullopt;
    if (!cores) return one_node(usable);
    NumaNode node{.id = id, .cores = {}, .distances = {}};
    std::ranges::set_intersection(*cores, usable, std::back_inserter(node.cores));
    found += node.cores.size();
    if (!node.cores.empty()) topology.nodes.push_back(std::move(node));
  }
  if (found != usable.size()) return one_node(usable);  // a core belongs to no node or to two nodes
  take_distances(folder, *online, topology);
  return topology;
}

Topology machine_topology(NumaMode mode) {
  // The core of the first call, because the thread may be pinned elsewhere later.
  static const int kFirstCore = system::current_core();
  return topology_for(read_topology("/sys/devices/system/node", usable_core_list()), mode,
                      kFirstCore);
}

int threads_for(int asked, NumaMode mode) {
  if (asked > 0) return asked;
  if (mode != NumaMode::isolate) return usable_cores();
  return std::min(usable_cores(),
                  static_cast<int>(machine_topology(mode).nodes.front().cores.size()));
}

int ThreadPlaces::first_thread(int node) const {
  return static_cast<int>(std::ranges::lower_bound(node_of, node) - node_of.begin());
}

std::vector<int> ThreadPlaces::nearest(int node) const {
  const auto count = static_cast<int>(topology.nodes.size());
  std::vector<int> order;
  for (int i = 0; i < count; ++i) order.push_back((node + i) % count);
  const std::vector<int>& distances = topology.nodes[static_cast<std::size_t>(node)].distances;
  std::stable_sort(order.begin() + 1, order.end(), [&](int a, int b) {
    return distances[static_cast<std::size_t>(a)] < distances[static_cast<std::size_t>(b)];
  });
  return order;
}

Topology topology_for(const Topology& topology, NumaMode mode, int here) {
  if (mode != NumaMode::isolate) return topology;
  const auto has = [&](const NumaNode& node) { return std::ranges::count(node.cores, here) > 0; };
  const auto found = std::ranges::find_if(topology.nodes, has);
  NumaNode only = found == topology.nodes.end() ? topology.nodes.front() : *found;
  only.distances = {kLocalDistance};
  return {{std::move(only)}};
}

ThreadPlaces place_threads(Topology topology, int threads) {
  std::vector<std::int64_t> cores_before = {0};
  for (const NumaNode& node : topology.nodes) {
    cores_before.push_back(cores_before.back() + std::ssize(node.cores));
  }
  const std::int64_t cores = cores_before.back();
  require(threads >= 1 && threads <= cores, Setting{"threads"}, ": expected 1 to ", cores,
          ", the cores of the memory nodes in use, found ", threads, "; see ", Setting{"numa"});
  ThreadPlaces places{std::move(topology), {}};
  for (std::int64_t thread = 0; thread < threads; ++thread) {
    const auto after = std::ranges::upper_bound(cores_before, thread * cores / threads);
    places.node_of.push_back(static_cast<int>(after - cores_before.begin()) - 1);
  }
  return places;
}

bool run_on(std::span<const int> cores) { return system::run_on(cores); }

}  // namespace leq
