// The memory block that the preloaded library shares with the test that starts it: a file that both
// map, so that counts survive if the process is killed.
#pragma once

#include <atomic>
#include <cstdint>

namespace leq::faults {

// System calls that can be made to fail.
enum class Call : std::uint32_t {
  open,
  read,   // including pread
  write,  // including pwrite
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
  allocate,       // a call of malloc or a similar function
  allocate_site,  // the first allocation of each call chain
  change,         // any call that changes files: opens that create, write, sync, rename, ...
  read_at,        // pread only: reads of parts of files, never of sockets
  accept,         // connections of clients
  receive,
  send,
  file_bytes,  // bytes that are written to files: from byte `at` on, the disk is full
  count_of
};
inline constexpr const char* kCallNames[] = {
    "open",          "read",   "write",   "sync",        "rename",  "link",   "truncate",
    "map",           "lock",   "close",   "make_folder", "remove",  "thread", "allocate",
    "allocate_site", "change", "read_at", "accept",      "receive", "send",   "file_bytes"};
static_assert(std::size(kCallNames) == static_cast<std::size_t>(Call::count_of));

enum class How : std::uint32_t {
  none,
  error,       // fails with `error`
  shortened,   // processes half of the requested bytes
  kill,        // SIGKILL instead of the call
  kill_after,  // SIGKILL after the call
  wait,        // waits until `go` is set
};

struct FaultBlock {
  // These fields are written by the test before the process starts.
  std::uint32_t call = 0;  // Call
  std::uint32_t how = 0;   // How
  std::int32_t error = 0;  // errno
  std::uint32_t padding = 0;
  std::uint64_t at = 0;  // index of the call of that kind, from 1
  std::atomic<std::uint32_t> go;
  // These fields are written by the library.
  std::atomic<std::uint32_t> reached;
  // Files that got a name (by rename or link) before their contents were synchronized: a power cut
  // would leave them half written under that name.
  std::atomic<std::uint32_t> named_unsynced;
  std::atomic<std::uint64_t> counts[static_cast<std::size_t>(Call::count_of)];
};

// The name of the environment variable that contains the path of the block's file.
inline constexpr const char* kBlockVariable = "LEQ_TEST_FAULTS";

}  // namespace leq::faults
