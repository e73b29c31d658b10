#include "format/loaded_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "base/control_group.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/huge_pages.h"
#include "base/text.h"
#include "base/thread_pool.h"

namespace leq {
namespace {

constexpr std::size_t kReadBytes = 8u << 20;   // per read; many reads, to share between threads
constexpr int kReadThreads = 4;                // copying from the page cache is memory-bound
constexpr std::size_t kMapBytes = 4u << 20;    // mapped ahead in one call: two huge pages
constexpr std::size_t kLookBytes = 64u << 20;  // mapped first to decide how to load the rest
constexpr std::uint64_t kMargin = 1'000'000'000;

std::optional<std::uint64_t> system_available() {
  std::ifstream info("/proc/meminfo");
  for (std::string key, value, rest; info >> key >> value && std::getline(info, rest);) {
    if (key == "MemAvailable:")
      return static_cast<std::uint64_t>(parse_int(value).value_or(0)) * 1024;
  }
  return std::nullopt;
}

void read_part(int descriptor, std::byte* to, std::size_t first, std::size_t last,
               const std::string& name) {
  while (first < last) {
    const ssize_t got = ::pread(descriptor, to + first, last - first, static_cast<off_t>(first));
    if (got < 0 && errno == EINTR) continue;
    require(got > 0, ErrorKind::io, name, ": cannot read at offset ", first, ": ",
            got < 0 ? std::strerror(errno) : "the file became shorter");
    first += static_cast<std::size_t>(got);
  }
}

using LoadProgress = decltype(LoadOptions::progress);

std::size_t bytes_of(std::span<const FileRange> parts) {
  std::size_t bytes = 0;
  for (const FileRange& part : parts) bytes += part.last - part.first;
  return bytes;
}

// Calls each(first, last) for all blocks of at most `block` bytes in the parts, on several threads.
template <typename Each>
void for_each_block(std::span<const FileRange> parts, std::size_t block,
                    const LoadProgress& progress, const Each& each) {
  std::vector<FileRange> blocks;
  for (const FileRange& part : parts) {
    for (std::size_t first = part.first; first < part.last; first += block) {
      blocks.push_back({first, std::min(first + block, part.last)});
    }
  }
  const std::size_t total = bytes_of(parts);
  ThreadPool pool = loading_pool(std::ssize(blocks));
  std::mutex progress_lock;
  std::size_t done = 0;
  pool.run(std::ssize(blocks), [&](std::int64_t task, int) {
    const auto [first, last] = blocks[static_cast<std::size_t>(task)];
    each(first, last);
    const std::lock_guard lock(progress_lock);
    done += last - first;
    progress(done, total);
  });
}

// A copy of the file in which only these parts were read and take memory.
HugeBuffer read_parts(const std::string& path, std::size_t size, std::span<const FileRange> parts,
                      const LoadProgress& progress) {
  const Descriptor file(path, O_RDONLY | O_NONBLOCK);
  HugeBuffer buffer(size, path.c_str());
  for_each_block(parts, kReadBytes, progress, [&](std::size_t first, std::size_t last) {
    read_part(file.get(), buffer.data(), first, last, path);
  });
  return buffer;
}

// Maps the whole file. Returns false if too many pages are small, tested on the file's beginning
// first. The page cache has huge pages of files that were written in blocks of 2 MB (AtomicFile) or
// are read through this mapping in order, if the file system supports them.
bool map_in_huge_pages(std::span<const std::byte> file, const LoadProgress& progress) {
  const auto map = [&](std::size_t bytes, const LoadProgress& report) {
    const FileRange part = {0, bytes};
    for_each_block({&part, 1}, kMapBytes, report, [&](std::size_t first, std::size_t last) {
      map_ahead(file.data() + first, last - first);
    });
    return bytes_in_huge_pages(file.data()) >= bytes / 8 * 7;
  };
  const std::size_t look = std::min(kLookBytes, file.size() / kHugePageBytes * kHugePageBytes);
  return look > 0 && map(look, [](auto, auto) {}) && map(file.size(), progress);
}

bool has_room(const LoadOptions& options, std::uint64_t size) {
  const auto available = available_memory();
  return available.has_value() && size <= *available &&
         options.memory_needed_beside <= *available - size &&
         *available - size - options.memory_needed_beside > kMargin;
}

// Huge pages would also hold what lies between the used parts of a file.
bool should_read(const LoadOptions& options, std::span<const std::byte> mapping,
                 std::size_t used_bytes) {
  if (mapping.empty() || options.mode == LoadMode::map) return false;
  return options.mode == LoadMode::read ||
         (used_bytes == mapping.size() && has_room(options, used_bytes) &&
          !map_in_huge_pages(mapping, options.progress));
}

}  // namespace

ThreadPool loading_pool(std::int64_t tasks) {
  try {
    return ThreadPool(
        static_cast<int>(std::min<std::int64_t>({kReadThreads, usable_cores(), tasks})));
  } catch (const Error&) {
    return ThreadPool(1);
  }
}

void lock_memory(std::span<const std::byte> bytes, const std::string& name) {
  if (::mlock(bytes.data(), bytes.size()) == 0) return;  // before errno is read
  fail(ErrorKind::no_memory, name, ": cannot lock ", bytes.size(),
       " bytes in memory: ", std::strerror(errno), "; raise `ulimit -l` or drop ", Setting{"lock"});
}

std::optional<std::uint64_t> available_memory() {
  const auto available = system_available();
  const auto left = read_control_groups().bytes;
  return available && left ? std::min(*available, *left) : available;
}

LoadedFile::LoadedFile(const std::filesystem::path& path) : mapping_(path) {
  ask_for_huge_pages(mapping_->bytes().data(), mapping_->bytes().size());
}

void LoadedFile::load(const LoadOptions& options, std::span<const FileRange> used) {
  mapping_->require_whole();
  const std::string name = mapping_->name();
  const std::size_t size = bytes().size();
  if (should_read(options, bytes(), bytes_of(used))) {
    mapping_.reset();
    buffer_ = read_parts(name, size, used, options.progress);
  }
  std::size_t unused = 0;
  for (const FileRange& part : used) {  // huge pages also took what is between the parts
    drop(bytes().subspan(unused, part.first - unused));
    unused = part.last;
  }
  if (!options.lock) return;
  for (const FileRange& part : used) {
    lock_memory(bytes().subspan(part.first, part.last - part.first), name);
  }
}

std::span<const std::byte> LoadedFile::bytes() const {
  return mapping_ ? mapping_->bytes() : std::span<const std::byte>(buffer_.bytes());
}

}  // namespace leq
