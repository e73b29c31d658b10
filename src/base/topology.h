// The NUMA node of each core, as Linux reports it in /sys, and the placement of threads on several
// nodes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace leq {

struct NumaNode {
  int id = 0;                  // the system's number of the node
  std::vector<int> cores;      // usable cores, ascending; not empty
  std::vector<int> distances;  // distances to all nodes of the topology; 10 to itself
};

struct Topology {
  std::vector<NumaNode> nodes;  // sorted by id; not empty
};

// Parses "0-3,8" to 0 1 2 3 8, ascending. Returns nullopt if the text is anything else or names a
// core number of 8,192 or more.
std::optional<std::vector<int>> parse_core_list(std::string_view text);

// Cores that this process may use (its affinity mask at the first call), ascending, at least one.
const std::vector<int>& usable_core_list();

// The nodes in `folder` that have a core of `usable`. If the folder has no valid description,
// returns one node with all usable cores.
Topology read_topology(const std::filesystem::path& folder, std::span<const int> usable);

enum class NumaMode : std::uint8_t {
  off,         // the system places threads and memory
  distribute,  // threads are spread over all nodes; weights are on their threads' nodes
  interleave,  // threads are spread; pages of weights alternate between the nodes
  isolate,     // threads and memory stay on one node
};

// Threads in the order of their nodes, so that adjacent shares of a loop are on one node.
struct ThreadPlaces {
  Topology topology;
  std::vector<int> node_of;  // thread -> index in topology.nodes

  // The first thread of a node. For the number of nodes, returns the number of threads.
  int first_thread(int node) const;
  // Node indices by distance from `node`, itself first; ties are ordered cyclically from `node`.
  std::vector<int> nearest(int node) const;
};

// The nodes that `mode` uses: isolate uses only one, the node of the core `here` or else the first.
Topology topology_for(const Topology& topology, NumaMode mode, int here);

// Assigns threads to nodes in proportion to their cores. Throws Error if threads exceed cores.
ThreadPlaces place_threads(Topology topology, int threads);

// Nodes of this machine that a process in this mode uses.
Topology machine_topology(NumaMode mode);

// The number of threads for a request of `asked`: 0 means one for each core that the mode uses.
int threads_for(int asked, NumaMode mode);

// Restricts the calling thread to these cores; false if the system refuses.
bool run_on(std::span<const int> cores);

}  // namespace leq
