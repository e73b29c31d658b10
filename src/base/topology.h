// Which memory node each core is near to, as Linux tells in /sys, and where threads go on several
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
  int id = 0;                  // the system's number
  std::vector<int> cores;      // that may be used, ascending; not empty
  std::vector<int> distances;  // to each node of the topology; 10 to itself, as firmware says
};

struct Topology {
  std::vector<NumaNode> nodes;  // by id; not empty
};

// "0-3,8" -> 0 1 2 3 8, ascending. nullopt where the text is anything else, or names a core of
// 8,192 or more.
std::optional<std::vector<int>> parse_core_list(std::string_view text);

// Cores that this process may use (its affinity mask when first asked), ascending, at least one.
const std::vector<int>& usable_core_list();

// What `folder` says of nodes that have a core of `usable`. One node with all of them where it says
// nothing, or what cannot be.
Topology read_topology(const std::filesystem::path& folder, std::span<const int> usable);

enum class NumaMode : std::uint8_t {
  off,         // threads run and memory lies where the system puts them
  distribute,  // threads are spread over all nodes; weights lie where their threads are
  interleave,  // threads are spread; pages of weights lie on all nodes in turn
  isolate,     // threads and memory stay on one node
};

// Threads in the order of their nodes, so that neighbouring shares of a loop are on one node.
struct ThreadPlaces {
  Topology topology;
  std::vector<int> node_of;  // thread -> index in topology.nodes

  // The first thread of a node; that of one past the last is the number of threads.
  int first_thread(int node) const;
  // Node indices by their distance from `node`, which comes first; of equal ones the next in turn.
  std::vector<int> nearest(int node) const;
};

// What `mode` leaves of a topology: isolate one node, the one with the core `here` or the first.
Topology topology_for(const Topology& topology, NumaMode mode, int here);

// Threads on nodes in proportion to their cores. Throws Error where there are more than cores.
ThreadPlaces place_threads(Topology topology, int threads);

// Nodes of this machine that a process in this mode uses.
Topology machine_topology(NumaMode mode);

// Threads where `asked` are wanted: 0 means one for each core that the mode leaves.
int threads_for(int asked, NumaMode mode);

// Lets the calling thread run on these cores alone; false where the system refuses.
bool run_on(std::span<const int> cores);

}  // namespace leq
