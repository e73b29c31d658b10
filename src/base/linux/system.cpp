#include "base/system.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/mempolicy.h>
#include <malloc.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdio>

namespace leq::system {
namespace {

constexpr std::size_t kMaxNodes = 1024;
constexpr std::size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;

// The kernel's HWCAP_ASIMDDP and HWCAP2_I8MM, whose header is there on ARM only.
constexpr unsigned long kArmDotprod = 1ul << 20;
constexpr unsigned long kArmI8mm = 1ul << 13;

}  // namespace

void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr,
            nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX,
            nullptr, nullptr, 0);
}

std::vector<int> usable_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &mask)) cores.push_back(core);
  }
  return cores;
}

int current_core() { return ::sched_getcpu(); }

bool run_on(std::span<const int> cores) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int core : cores) {
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(core), &mask);
  }
  return ::sched_setaffinity(0, sizeof mask, &mask) == 0;
}

bool has_arm_dotprod() { return (::getauxval(AT_HWCAP) & kArmDotprod) != 0; }

bool has_arm_i8mm() { return (::getauxval(AT_HWCAP2) & kArmI8mm) != 0; }

void ask_for_huge_pages(std::byte* data, std::size_t bytes) noexcept {
  ::madvise(data, bytes, MADV_HUGEPAGE);
}

void map_pages(std::byte* data, std::size_t bytes) noexcept {
  ::madvise(data, bytes, MADV_POPULATE_READ);
}

void move_to_nodes(const std::byte* data, std::size_t bytes, std::span<const int> nodes) noexcept {
  std::array<unsigned long, kMaxNodes / kWordBits> mask = {};
  for (const int node : nodes) {
    const auto bit = static_cast<std::size_t>(node);
    if (bit < kMaxNodes) mask[bit / kWordBits] |= 1ul << (bit % kWordBits);
  }
  const int policy = nodes.size() == 1 ? MPOL_PREFERRED : MPOL_INTERLEAVE;
  ::syscall(SYS_mbind, data, bytes, policy, mask.data(), kMaxNodes, MPOL_MF_MOVE);
}

int open_nameless(const std::filesystem::path& folder) {
  if (::access("/proc/self/fd", X_OK) != 0) return -1;  // needed to name the file
  return ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
}

int open_in_memory(const char* name) { return ::memfd_create(name, MFD_CLOEXEC); }

bool give_name(int descriptor, const std::filesystem::path& name) {
  const std::string source = "/proc/self/fd/" + std::to_string(descriptor);
  return ::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

int reserve_space(int descriptor, off_t bytes) { return ::posix_fallocate(descriptor, 0, bytes); }

std::string lock_name(const struct stat& status) {
  char text[64];
  std::snprintf(text, sizeof text, "%02x:%02x:%llu", ::major(status.st_dev), ::minor(status.st_dev),
                static_cast<unsigned long long>(status.st_ino));
  return text;
}

void return_freed_memory() { ::malloc_trim(0); }

void return_freed_blocks(int bytes) { ::mallopt(M_MMAP_THRESHOLD, bytes); }

}  // namespace leq::system
