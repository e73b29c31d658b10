// Reads memory nodes from a folder like /sys: what is read or refused, and how threads are placed.
#include "base/topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"

namespace leq {
namespace {

using Cores = std::vector<int>;

// A machine's files: node folders with their cores and distances.
class FakeNodes {
 public:
  struct Node {
    int id;
    std::string cores, distances;
  };
  FakeNodes(const std::string& online, const std::vector<Node>& nodes) {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("nodes_" + std::to_string(::getpid()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name());
    write("online", online);
    for (const Node& node : nodes) {
      write("node" + std::to_string(node.id) + "/cpulist", node.cores);
      write("node" + std::to_string(node.id) + "/distance", node.distances);
    }
  }
  ~FakeNodes() { std::filesystem::remove_all(folder_); }
  FakeNodes(const FakeNodes&) = delete;
  FakeNodes& operator=(const FakeNodes&) = delete;

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text << "\n";
  }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
};

Cores first_cores(int count) {
  Cores cores;
  for (int i = 0; i < count; ++i) cores.push_back(i);
  return cores;
}

TEST(CoreList, AreReadAsLinuxWritesThem) {
  EXPECT_EQ(parse_core_list("0"), Cores{0});
  EXPECT_EQ(parse_core_list("0-3,8,10-11"), (Cores{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_core_list(""), Cores{});  // a node with memory only
  EXPECT_EQ(parse_core_list("8191"), Cores{8191});
}

TEST(CoreList, EverythingElseIsRefused) {
  for (const char* text : {"a", "-", "1-", "-1", "3-1", "0,0", "2,1", "0-2,2", "1,,2", ",", "1 2",
                           "8192", "0-99999999999", "0x1", "1-2-3", "+1", "\n"}) {
    EXPECT_EQ(parse_core_list(text), std::nullopt) << text;
  }
}

TEST(CoreList, EveryTruncatedListIsShorterOrRefused) {
  const std::string whole = "0-3,8-11,4095";
  for (std::size_t n = 0; n < whole.size(); ++n) {
    const auto cores = parse_core_list(whole.substr(0, n));
    EXPECT_TRUE(!cores || cores->size() <= 9) << n;
  }
}

TEST(Topology, HasNodesWithUsableCoresAndTheirDistances) {
  // Node 1 has only memory; this process may not use node 2's cores 4 and 5.
  const FakeNodes machine("0-3", {{0, "0-1,6", "10 15 20 30"},
                                  {1, "", "15 10 20 20"},
                                  {2, "2-5", "20 20 10 40"},
                                  {3, "7", "30 20 40 10"}});
  const Cores usable = {0, 1, 2, 3, 6, 7};
  const Topology topology = read_topology(machine.folder(), usable);
  ASSERT_EQ(topology.nodes.size(), 3u);
  EXPECT_EQ(topology.nodes[0].cores, (Cores{0, 1, 6}));
  EXPECT_EQ(topology.nodes[1].id, 2);
  EXPECT_EQ(topology.nodes[1].cores, (Cores{2, 3}));
  EXPECT_EQ(topology.nodes[0].distances, (Cores{10, 20, 30}));
  EXPECT_EQ(topology.nodes[1].distances, (Cores{20, 10, 40}));
  EXPECT_EQ(topology.nodes[2].distances, (Cores{30, 40, 10}));
}

TEST(Topology, IsOneNodeWhereFilesAreMissingOrContradictEachOther) {
  const auto is_one = [](const FakeNodes& machine, const Cores& usable) {
    const Topology topology = read_topology(machine.folder(), usable);
    return topology.nodes.size() == 1 && topology.nodes[0].cores == usable &&
           topology.nodes[0].distances == Cores{10};
  };
  const Cores four = first_cores(4);
  const std::vector<FakeNodes::Node> two = {{0, "0-1", "10 20"}, {1, "2-3", "20 10"}};
  EXPECT_EQ(read_topology(FakeNodes("0-1", two).folder(), four).nodes.size(), 2u);
  EXPECT_TRUE(is_one(FakeNodes("", two), four));
  EXPECT_TRUE(is_one(FakeNodes("0-2", two), four));  // a folder is missing
  EXPECT_TRUE(is_one(FakeNodes("0-1", {{0, "0-2", ""}, {1, "2-3", ""}}), four));  // core 2 twice
  EXPECT_TRUE(is_one(FakeNodes("0-1", {{0, "0", ""}, {1, "2-3", ""}}), four));    // core 1 missing
  EXPECT_TRUE(is_one(FakeNodes("0-1", {{0, "x", ""}, {1, "2-3", ""}}), four));
  EXPECT_TRUE(is_one(FakeNodes(std::string(70'000, '1'), two), four));
  EXPECT_EQ(read_topology("/nowhere/at/all", four).nodes.size(), 1u);
}

TEST(Topology, DistancesThatCannotBeReadAreThoseOfNeighbours) {
  const FakeNodes machine("0-1", {{0, "0-1", "10"}, {1, "2-3", "far near"}});
  const Topology topology = read_topology(machine.folder(), first_cores(4));
  EXPECT_EQ(topology.nodes[0].distances, (Cores{10, 20}));
  EXPECT_EQ(topology.nodes[1].distances, (Cores{20, 10}));
}

Topology nodes_of(const std::vector<Cores>& cores, const std::vector<Cores>& distances) {
  Topology topology;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    topology.nodes.push_back({static_cast<int>(i), cores[i], distances[i]});
  }
  return topology;
}

TEST(ThreadPlaces, AreInProportionToCores) {
  const Topology uneven = nodes_of({{0, 1, 2, 3, 4, 5}, {6, 7}}, {{10, 20}, {20, 10}});
  EXPECT_EQ(place_threads(uneven, 8).node_of, (Cores{0, 0, 0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(place_threads(uneven, 4).node_of, (Cores{0, 0, 0, 1}));
  EXPECT_EQ(place_threads(uneven, 1).node_of, Cores{0});
  EXPECT_THROW(place_threads(uneven, 9), Error);
  const ThreadPlaces places = place_threads(uneven, 8);
  EXPECT_EQ(places.first_thread(0), 0);
  EXPECT_EQ(places.first_thread(1), 6);
  EXPECT_EQ(places.first_thread(2), 8);
}

TEST(ThreadPlaces, NearestNodesComeFirst) {
  const Topology ring =
      nodes_of({{0}, {1}, {2}, {3}},
               {{10, 16, 28, 16}, {16, 10, 16, 28}, {28, 16, 10, 16}, {16, 28, 16, 10}});
  const ThreadPlaces places = place_threads(ring, 4);
  EXPECT_EQ(places.nearest(0), (Cores{0, 1, 3, 2}));
  EXPECT_EQ(places.nearest(1), (Cores{1, 2, 0, 3}));
  EXPECT_EQ(places.nearest(3), (Cores{3, 0, 2, 1}));
}

TEST(ThreadPlaces, IsolateKeepsTheNodeOfTheFirstCore) {
  const Topology two = nodes_of({{0, 1}, {2, 3}}, {{10, 20}, {20, 10}});
  EXPECT_EQ(topology_for(two, NumaMode::isolate, 3).nodes[0].cores, (Cores{2, 3}));
  EXPECT_EQ(topology_for(two, NumaMode::isolate, 99).nodes[0].cores, (Cores{0, 1}));
  EXPECT_EQ(topology_for(two, NumaMode::isolate, 3).nodes.size(), 1u);
  EXPECT_EQ(topology_for(two, NumaMode::distribute, 3).nodes.size(), 2u);
}

}  // namespace
}  // namespace leq
