// Reads limits from folders like those of Linux and of containers.
#include "base/control_group.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace leq {
namespace {

class ControlGroups : public testing::Test {
 protected:
  ~ControlGroups() override { std::filesystem::remove_all(root_); }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text << "\n";
  }
  ControlGroupLimits read() const { return read_control_groups(root_); }

 private:
  std::filesystem::path root_ = std::filesystem::path(testing::TempDir()) /
                                ("groups_" + std::to_string(::getpid()) + "_" +
                                 testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ControlGroups, WithoutFilesThereAreNoLimits) {
  EXPECT_FALSE(read().cores);
  EXPECT_FALSE(read().bytes);
  write("proc/self/cgroup", "0::/\nnothing\n");
  write("sys/fs/cgroup/cpu.max", "max 100000");
  write("sys/fs/cgroup/memory.max", "max");
  write("sys/fs/cgroup/memory.current", "5");
  EXPECT_FALSE(read().cores);
  EXPECT_FALSE(read().bytes);
}

TEST_F(ControlGroups, TheLeastLimitOfAllAncestorsCounts) {
  write("proc/self/cgroup", "0::/pods/one/app");
  write("sys/fs/cgroup/pods/cpu.max", "400000 100000");
  write("sys/fs/cgroup/pods/one/cpu.max", "150000 100000");
  write("sys/fs/cgroup/pods/one/app/cpu.max", "max 100000");
  write("sys/fs/cgroup/pods/memory.max", "1000");
  write("sys/fs/cgroup/pods/memory.current", "900");
  write("sys/fs/cgroup/pods/one/app/memory.max", "500");
  write("sys/fs/cgroup/pods/one/app/memory.current", "100");
  EXPECT_EQ(read().cores, 1.5);
  EXPECT_EQ(read().bytes, 100u);
}

TEST_F(ControlGroups, OfVersionOneHaveAFolderForEachController) {
  write("proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a/b\n3:pids:/c\n0::/");
  write("sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "50000");
  write("sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "700");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "600");
  write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "700");
  EXPECT_EQ(read().cores, 0.5);
  EXPECT_EQ(read().bytes, 0u);
}

// Without a namespace of its own a container sees the host's path and its own folder as the mount.
TEST_F(ControlGroups, OfTheHostsPathOnlyTheMountIsThere) {
  for (const char* path : {"/docker/0123", "/../../docker/0123"}) {
    write("proc/self/cgroup", std::string("0::") + path);
    write("sys/fs/cgroup/cpu.max", "200000 100000");
    EXPECT_EQ(read().cores, 2.0) << path;
  }
}

}  // namespace
}  // namespace leq
