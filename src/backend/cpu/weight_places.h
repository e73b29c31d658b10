// Where a weight's pages go on several memory nodes: to the node whose threads multiply its panels
// first, or to all nodes in turn.
#pragma once

#include <cstddef>
#include <vector>

#include "base/topology.h"
#include "tensor/weight_layout.h"

namespace leq::cpu {

// Whole huge pages, so that none is split; they are on one of the nodes, or on all in turn.
struct PagesOfNode {
  const std::byte* first = nullptr;
  std::size_t bytes = 0;
  std::vector<int> nodes;  // the system's numbers

  bool operator==(const PagesOfNode&) const = default;
};

class WeightPlaces {
 public:
  WeightPlaces() = default;  // nothing is moved
  WeightPlaces(const ThreadPlaces& threads, NumaMode mode) : threads_(threads), mode_(mode) {}

  int node_count() const { return static_cast<int>(threads_.topology.nodes.size()); }

  // A thread's share of a loop over panels is its part of them, so a node's part of the codes is
  // that of its threads. A page with the end of one part and the begin of the next goes with its
  // first byte; scales and other small planes lie where they lie.
  std::vector<PagesOfNode> of(const WeightView& weight) const;

 private:
  // Of one plane of codes, panel after panel.
  void add_plane(const std::byte* plane, std::size_t bytes, std::vector<PagesOfNode>& parts) const;

  ThreadPlaces threads_;
  NumaMode mode_ = NumaMode::off;
};

// Asks the system to move these pages; whatever it refuses (pages that other processes use, too) or
// has no room for stays where it is.
void move_pages(const PagesOfNode& pages) noexcept;

}  // namespace leq::cpu
