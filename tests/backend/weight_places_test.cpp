// Placement of weights on a simulated machine with several memory nodes: every huge page of codes
// is placed on one node, which is mostly the node of the threads that multiply these codes.
#include "backend/cpu/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/huge_pages.h"

namespace leq::cpu {
namespace {

// Returns `nodes` nodes with the numbers 3, 4, ..., each with `threads_each` threads.
ThreadPlaces threads_on(int nodes, int threads_each) {
  Topology topology;
  for (int node = 0; node < nodes; ++node) {
    NumaNode one{.id = node + 3, .cores = {}, .distances = {}};
    for (int core = 0; core < threads_each; ++core) one.cores.push_back(node * threads_each + core);
    one.distances.assign(static_cast<std::size_t>(nodes), 20);
    topology.nodes.push_back(one);
  }
  return place_threads(topology, nodes * threads_each);
}

WeightView weight_at(const std::byte* codes, const char* scheme, std::int64_t rows,
                     std::int64_t columns) {
  WeightView weight;
  weight.scheme = *parse_scheme(scheme);
  weight.act = ActKind::g128;
  weight.rows = rows;
  weight.columns = columns;
  weight.codes = codes;
  return weight;
}

// Returns the node of a byte; -1 if its page was not placed.
int node_at(const std::vector<PagesOfNode>& parts, const std::byte* at) {
  for (const PagesOfNode& part : parts) {
    if (at >= part.first && at < part.first + part.bytes) return part.nodes.at(0);
  }
  return -1;
}

TEST(WeightPlaces, PanelsLieWithTheThreadsThatMultiplyThem) {
  constexpr std::int64_t kRows = 8192, kColumns = 4096;  // 8 bits: 32 MB
  const auto* const codes = reinterpret_cast<const std::byte*>(std::uintptr_t{7} << 30);
  for (const char* scheme : {"int8-g128", "int4-g128", "int3-g128"}) {
    const int bits = scheme[3] - '0';
    for (const int nodes : {2, 4}) {
      const WeightView weight = weight_at(codes, scheme, kRows, kColumns);
      const auto parts = WeightPlaces(threads_on(nodes, 4), NumaMode::distribute).of(weight);
      // Each panel is checked by its first byte in the plane. Where one node's part of a plane
      // ends, at most one page may be on another node.
      const std::int64_t plane_bits = bits == 3 ? 2 : bits;
      const std::int64_t panel_bytes = 64 * kColumns * plane_bits / 8, panels = kRows / 64;
      std::int64_t wrong = 0;
      for (std::int64_t panel = 0; panel < panels; ++panel) {
        const std::int64_t owner = panel * nodes / panels;
        const int node = node_at(parts, codes + panel * panel_bytes);
        ASSERT_NE(node, -1) << scheme << ", panel " << panel;
        wrong += node == 3 + owner ? 0 : 1;
      }
      EXPECT_LE(wrong * panel_bytes, (nodes - 1) * std::int64_t{kHugePageBytes}) << scheme;
      if (bits != 3) continue;
      // The plane of third bits has two pages; the second page begins in the middle of the panels.
      EXPECT_EQ(node_at(parts, codes + kRows * kColumns * 3 / 8 - 1), 3 + nodes / 2);
    }
  }
}

TEST(WeightPlaces, PartsAreWholePagesThatDoNotMeet) {
  const auto* const codes = reinterpret_cast<const std::byte*>((std::uintptr_t{7} << 30) + 4096);
  const WeightView weight = weight_at(codes, "int4-g128", 11008, 4096);
  const auto parts = WeightPlaces(threads_on(3, 5), NumaMode::distribute).of(weight);
  ASSERT_EQ(parts.size(), 3u);
  const std::byte* end = nullptr;
  for (const PagesOfNode& part : parts) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(part.first) % kHugePageBytes, 0u);
    EXPECT_EQ(part.bytes % kHugePageBytes, 0u);
    EXPECT_TRUE(end == nullptr || part.first == end);
    end = part.first + part.bytes;
  }
}

TEST(WeightPlaces, InterleavedPagesLieOnAllNodes) {
  const auto* const codes = reinterpret_cast<const std::byte*>(std::uintptr_t{7} << 30);
  const WeightView weight = weight_at(codes, "int8-g128", 4096, 4096);
  const auto parts = WeightPlaces(threads_on(3, 2), NumaMode::interleave).of(weight);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].nodes, (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(parts[0].bytes, std::size_t{16} << 20);
}

TEST(WeightPlaces, NothingMovesWithoutNodesOrBelowAPage) {
  const auto* const codes = reinterpret_cast<const std::byte*>(std::uintptr_t{7} << 30);
  EXPECT_TRUE(WeightPlaces().of(weight_at(codes, "int8-g128", 4096, 4096)).empty());
  const auto* const inside = codes + 64;
  EXPECT_TRUE(WeightPlaces(threads_on(2, 1), NumaMode::distribute)
                  .of(weight_at(inside, "int8-g128", 128, 128))
                  .empty());
}

// The system must accept the request to move real memory to its first node and keep the bytes.
TEST(WeightPlaces, MovedPagesKeepTheirBytes) {
  const HugeBuffer buffer(8 * kHugePageBytes, "test");
  for (std::size_t i = 0; i < buffer.size(); i += 4096) {
    buffer.data()[i] = static_cast<std::byte>(i / 4096 % 251);
  }
  move_pages({buffer.data(), 4 * kHugePageBytes, {0}});
  move_pages({buffer.data() + 4 * kHugePageBytes, 4 * kHugePageBytes, {0, 1}});
  move_pages({buffer.data(), kHugePageBytes, {100'000}});  // no such node, so it is refused
  for (std::size_t i = 0; i < buffer.size(); i += 4096) {
    ASSERT_EQ(buffer.data()[i], static_cast<std::byte>(i / 4096 % 251));
  }
}

}  // namespace
}  // namespace leq::cpu
