// The limits of CPU time and memory that Linux's control groups (containers, services) set on this
// process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace leq {

struct ControlGroupLimits {
  std::optional<double> cores;         // CPU time per time: the CFS quota
  std::optional<std::uint64_t> bytes;  // memory that is left below the limit
};

// The least limits of the process's groups and their ancestors, version 1 or 2, as the files below
// `root` say: proc/self/cgroup and sys/fs/cgroup. What is missing or unreadable sets no limit.
ControlGroupLimits read_control_groups(const std::filesystem::path& root = "/");

}  // namespace leq
