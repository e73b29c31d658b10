// Host memory of the CPU backend, and the placement of weights on several memory nodes.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "backend/memory.h"
#include "base/topology.h"
#include "tensor/weight_layout.h"

namespace leq::cpu {

// A range of whole huge pages (so that none is split), for one node or interleaved over all nodes.
struct PagesOfNode {
  const std::byte* first = nullptr;
  std::size_t bytes = 0;
  std::vector<int> nodes;  // numbers of nodes in the operating system

  bool operator==(const PagesOfNode&) const = default;
};

// Placement of a weight's pages on several memory nodes: on the node whose threads multiply its
// panels first, or interleaved over all nodes.
class WeightPlaces {
 public:
  WeightPlaces() = default;  // moves nothing
  WeightPlaces(const ThreadPlaces& threads, NumaMode mode) : threads_(threads), mode_(mode) {}

  int node_count() const { return static_cast<int>(threads_.topology.nodes.size()); }

  // The page ranges of a weight. Threads divide a loop over panels into contiguous parts, and a
  // node holds the codes of its threads' parts. A page that contains a boundary belongs to the part
  // of its first byte. Scales and other small planes are not moved.
  std::vector<PagesOfNode> of(const WeightView& weight) const;

 private:
  // Adds the ranges of one plane of codes, which is stored panel after panel.
  void add_plane(const std::byte* plane, std::size_t bytes, std::vector<PagesOfNode>& parts) const;

  ThreadPlaces threads_;
  NumaMode mode_ = NumaMode::off;
};

// Requests that the operating system move these pages. Pages that it refuses to move (for example
// because other processes use them), or that do not fit on the node, remain in place.
void move_pages(const PagesOfNode& pages) noexcept;

class Memory final : public DeviceMemory {
 public:
  explicit Memory(WeightPlaces places) : DeviceMemory(1), places_(std::move(places)) {}
  ~Memory() override { drop_scratch(); }

  // The number of memory nodes over which weights are distributed; 0: weights are not moved.
  int nodes() const { return places_.node_count(); }

  std::optional<DeviceMemoryInfo> info() const override { return std::nullopt; }
  void plan(std::size_t, std::size_t) override {}
  // Weights are used where they were loaded; with several nodes their pages are moved first.
  WeightView place(const WeightView& weight, std::vector<Buffer>&) override;
  UploadReport finish_placing() override { return {}; }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void write(std::byte* to, std::span<const std::byte> from) override;
  void read(const std::byte* from, std::span<std::byte> to) override;

 private:
  // Allocates 64-byte aligned, zeroed memory. Blocks of at least 2 MB use huge pages, which the
  // operating system maps on first touch.
  std::byte* allocate_block(std::size_t bytes) override;
  void free_block(std::byte* data, std::size_t bytes) noexcept override;

  WeightPlaces places_;
};

}  // namespace leq::cpu
