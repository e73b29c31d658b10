// Compiled, but never run (docs/packages.md).
#include "base/system.h"

#include <fcntl.h>
#include <malloc/malloc.h>
#include <sys/mman.h>
#include <sys/sysctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <numeric>
#include <thread>

namespace leq::system {

namespace {

bool has_feature(const char* name) {
  int value = 0;
  std::size_t size = sizeof value;
  return ::sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

}  // namespace

// libc++ sleeps in the kernel, too.
void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value) { word.wait(value); }

void wake_all(std::atomic<std::uint32_t>& word) { word.notify_all(); }

std::vector<int> usable_cores() {
  std::vector<int> cores(std::max(1u, std::thread::hardware_concurrency()));
  std::iota(cores.begin(), cores.end(), 0);
  return cores;
}

int current_core() { return -1; }

bool run_on(std::span<const int>) { return false; }

bool has_arm_dotprod() { return has_feature("hw.optional.arm.FEAT_DotProd"); }

bool has_arm_i8mm() { return has_feature("hw.optional.arm.FEAT_I8MM"); }

void ask_for_huge_pages(std::byte*, std::size_t) noexcept {}

void map_pages(std::byte* data, std::size_t bytes) noexcept {
  ::madvise(data, bytes, MADV_WILLNEED);
}

void move_to_nodes(const std::byte*, std::size_t, std::span<const int>) noexcept {}

int open_nameless(const std::filesystem::path&) {
  errno = ENOTSUP;
  return -1;
}

int open_in_memory(const char*) {
  std::string name = (std::filesystem::temp_directory_path() / "leq.XXXXXX").string();
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor >= 0) ::unlink(name.c_str());
  return descriptor;
}

bool give_name(int, const std::filesystem::path&) { return false; }

int reserve_space(int descriptor, off_t bytes) {
  fstore_t wanted = {F_ALLOCATEALL, F_PEOFPOSMODE, 0, bytes, 0};
  if (::fcntl(descriptor, F_PREALLOCATE, &wanted) != 0) return errno;
  return ::ftruncate(descriptor, bytes) == 0 ? 0 : errno;
}

std::string lock_name(const struct stat&) { return ""; }

void return_freed_memory() { ::malloc_zone_pressure_relief(nullptr, 0); }

void return_freed_blocks(int) {}

}  // namespace leq::system
