// What the preloaded library and the test that starts it share: a file, mapped by both, so that
// counts survive a process that is killed.
#pragma once

#include <atomic>
#include <cstdint>

namespace leq::faults {

// Calls that can be made to fail.
enum class Call : std::uint32_t {
  open,
  read,   // and pread
  write,  // and pwrite
  sync,   // fsync, fdatasync
  rename,
  link,
  truncate,
  map,
  lock,  // flock, and locks by fcntl
  close,
  make_folder,
  remove,  // unlink, unlinkat, rmdir
  thread,
  allocate,       // a call of malloc and its kind
  allocate_site,  // the first of each chain of callers
  change,         // any call that changes files: opens that create, write, sync, rename, ...
  read_at,        // pread alone: of files that a tool reads in parts, never of a socket
  count_of
};
inline constexpr const char* kCallNames[] = {
    "open",     "read",     "write",         "sync",   "rename",      "link",
    "truncate", "map",      "lock",          "close",  "make_folder", "remove",
    "thread",   "allocate", "allocate_site", "change", "read_at"};
static_assert(std::size(kCallNames) == static_cast<std::size_t>(Call::count_of));

enum class How : std::uint32_t {
  none,
  error,       // fails with `error`
  shortened,   // half of what is asked for
  kill,        // SIGKILL in the place of the call
  kill_after,  // SIGKILL after it
  wait,        // goes on when `go` is set
};

struct FaultBlock {
  // Written by the test before the start.
  std::uint32_t call = 0;  // Call
  std::uint32_t how = 0;   // How
  std::int32_t error = 0;  // errno
  std::uint32_t padding = 0;
  std::uint64_t at = 0;  // the n-th call of that kind, from 1
  std::atomic<std::uint32_t> go;
  // Written by the library.
  std::atomic<std::uint32_t> reached;
  std::atomic<std::uint64_t> counts[static_cast<std::size_t>(Call::count_of)];
};

// The environment variable that holds the path of the block's file.
inline constexpr const char* kBlockVariable = "LEQ_TEST_FAULTS";

}  // namespace leq::faults
