#include "backend/cpu/memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/huge_pages.h"
#include "base/system.h"
#include "base/text.h"

namespace leq::cpu {
namespace {

// The huge pages that begin in [first, last).
PagesOfNode pages_between(const std::byte* first, const std::byte* last, std::vector<int> nodes) {
  const auto rounded = [](const std::byte* at) {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    return (address + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes - address;
  };
  const std::byte* const begin = first + rounded(first);
  const std::byte* const end = last + rounded(last);
  if (begin >= end) return {};
  return {begin, static_cast<std::size_t>(end - begin), std::move(nodes)};
}

}  // namespace

std::vector<PagesOfNode> WeightPlaces::of(const WeightView& weight) const {
  std::vector<PagesOfNode> parts;
  if (node_count() == 0 || weight.codes == nullptr) return parts;
  const std::size_t bytes =
      plane_bytes(weight.scheme, weight.act, weight.rows, weight.columns).codes;
  const CodePlanes planes = code_planes(weight);
  const auto bits = static_cast<std::size_t>(planes.low_bits + planes.high_bits);
  if (planes.high_bits == 0) {
    add_plane(weight.codes, bytes, parts);
  } else {
    const std::size_t high = bytes / bits * static_cast<std::size_t>(planes.high_bits);
    add_plane(weight.codes, bytes - high, parts);
    add_plane(weight.codes + planes.high_at, high, parts);
  }
  return parts;
}

void WeightPlaces::add_plane(const std::byte* plane, std::size_t bytes,
                             std::vector<PagesOfNode>& parts) const {
  const auto add = [&](std::size_t from, std::size_t to, std::vector<int> nodes) {
    PagesOfNode pages = pages_between(plane + from, plane + to, std::move(nodes));
    if (pages.bytes > 0) parts.push_back(std::move(pages));
  };
  if (mode_ == NumaMode::interleave) {
    std::vector<int> all;
    for (const NumaNode& node : threads_.topology.nodes) all.push_back(node.id);
    return add(0, bytes, std::move(all));
  }
  const std::size_t threads = threads_.node_of.size();
  const auto first_byte = [&](int node) {
    return bytes * static_cast<std::size_t>(threads_.first_thread(node)) / threads;
  };
  for (int node = 0; node < node_count(); ++node) {
    add(first_byte(node), first_byte(node + 1),
        {threads_.topology.nodes[static_cast<std::size_t>(node)].id});
  }
}

void move_pages(const PagesOfNode& pages) noexcept {
  system::move_to_nodes(pages.first, pages.bytes, pages.nodes);
}

namespace {

constexpr std::size_t kLine = 64;

std::size_t rounded(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::byte* take_small(std::size_t bytes) {
  void* data = std::aligned_alloc(kLine, rounded(bytes));
  if (data != nullptr) std::memset(data, 0, rounded(bytes));
  return static_cast<std::byte*>(data);
}

}  // namespace

WeightView Memory::place(const WeightView& weight, std::vector<Buffer>&) {
  for (const PagesOfNode& pages : places_.of(weight)) move_pages(pages);
  return weight;
}

std::byte* Memory::allocate_block(std::size_t bytes) {
  std::byte* data = nullptr;
  if (bytes < SIZE_MAX / 2)
    data = bytes >= kHugePageBytes ? map_huge_pages(bytes) : take_small(bytes);
  require(data != nullptr, ErrorKind::no_memory, "memory: cannot take ", human_bytes(bytes),
          " beside the ", human_bytes(allocated()), " in use; try a smaller ", Setting{"context"},
          ", or ", Setting{"key_type"}, " and ", Setting{"value_type"}, " of fewer bits");
  return data;
}

void Memory::free_block(std::byte* data, std::size_t bytes) noexcept {
  if (bytes >= kHugePageBytes) {
    unmap_huge_pages(data, bytes);
  } else {
    std::free(data);
  }
}

void Memory::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);  // the pointers of empty buffers may be null
}

void Memory::write(std::byte* to, std::span<const std::byte> from) {
  copy(to, from.data(), from.size());
}

void Memory::read(const std::byte* from, std::span<std::byte> to) {
  copy(to.data(), from, to.size());
}

}  // namespace leq::cpu
