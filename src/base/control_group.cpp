#include "base/control_group.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/text.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

// A number of 0 or more that begins a file; "max" and -1 are no limits.
std::optional<std::uint64_t> number_in(const fs::path& path, int place = 0) {
  std::ifstream file(path);
  std::string word;
  for (int i = 0; i <= place; ++i) {
    if (!(file >> word)) return std::nullopt;
  }
  const auto value = parse_int(word);
  return value && *value >= 0 ? std::optional(static_cast<std::uint64_t>(*value)) : std::nullopt;
}

template <class T>
void lower(std::optional<T>& limit, T value) {
  limit = limit ? std::min(*limit, value) : value;
}

void read_cores(const std::optional<std::uint64_t>& quota,
                const std::optional<std::uint64_t>& period, ControlGroupLimits& limits) {
  if (!quota || !period || *quota == 0 || *period == 0) return;
  lower(limits.cores, static_cast<double>(*quota) / static_cast<double>(*period));
}

void read_memory(const fs::path& limit, const fs::path& used, ControlGroupLimits& limits) {
  const auto most = number_in(limit), now = number_in(used);
  if (most && now) lower(limits.bytes, *most - std::min(*now, *most));
}

// A file is in the folder of one version only, so that both are looked for.
void read_group(const fs::path& folder, ControlGroupLimits& limits) {
  read_cores(number_in(folder / "cpu.max"), number_in(folder / "cpu.max", 1), limits);
  read_cores(number_in(folder / "cpu.cfs_quota_us"), number_in(folder / "cpu.cfs_period_us"),
             limits);
  read_memory(folder / "memory.max", folder / "memory.current", limits);
  read_memory(folder / "memory.limit_in_bytes", folder / "memory.usage_in_bytes", limits);
}

}  // namespace

ControlGroupLimits read_control_groups(const fs::path& root) {
  ControlGroupLimits limits;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    // "4:cpu,cpuacct:/a/b"; version 2: "0::/a/b".
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    // In a container the path may be the host's, of which only the mount itself is here.
    fs::path path = fs::path(line.substr(second + 1)).relative_path().lexically_normal();
    if (path.begin() != path.end() && *path.begin() == "..") path.clear();
    for (const std::string_view controller : split(controllers, ",")) {
      if (!controller.empty() && controller != "cpu" && controller != "memory") continue;
      const fs::path mount = mounts / controller;
      for (fs::path group = path; !group.empty(); group = group.parent_path()) {
        read_group(mount / group, limits);
      }
      read_group(mount, limits);
    }
  }
  return limits;
}

}  // namespace leq
