#include "backend/cpu/weight_places.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdint>

#include "base/huge_pages.h"

namespace leq::cpu {
namespace {

constexpr std::size_t kMostNodes = 1024;
constexpr std::size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;

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
  std::array<unsigned long, kMostNodes / kWordBits> mask = {};
  for (const int node : pages.nodes) {
    const auto bit = static_cast<std::size_t>(node);
    if (bit < kMostNodes) mask[bit / kWordBits] |= 1ul << (bit % kWordBits);
  }
  const int policy = pages.nodes.size() == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
  ::syscall(SYS_mbind, pages.first, pages.bytes, policy, mask.data(), kMostNodes, MPOL_MF_MOVE);
}

}  // namespace leq::cpu
