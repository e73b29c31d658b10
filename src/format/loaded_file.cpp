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

#include "base/control_group.h"
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

class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path)
      : value_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    require(value_ >= 0, ErrorKind::io, path.string(), ": cannot open: ", std::strerror(errno));
  }
  ~Descriptor() { ::close(value_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

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

// Calls part(first, last) for each block of `block` bytes in `size` bytes, on several threads.
template <typename Part>
void for_each_part(std::size_t size, std::size_t block, const LoadProgress& progress,
                   const Part& part) {
  const auto tasks = static_cast<std::int64_t>((size + block - 1) / block);
  ThreadPool pool = loading_pool(tasks);
  std::mutex progress_lock;
  std::size_t done = 0;
  pool.run(tasks, [&](std::int64_t task, int) {
    const std::size_t first = static_cast<std::size_t>(task) * block;
    const std::size_t last = std::min(first + block, size);
    part(first, last);
    const std::lock_guard lock(progress_lock);
    done += last - first;
    progress(done, size);
  });
}

HugeBuffer read_whole(const std::filesystem::path& path, std::size_t size,
                      const LoadProgress& progress) {
  const Descriptor file(path);
  const std::string name = path.string();
  HugeBuffer buffer(size, name.c_str());
  for_each_part(size, kReadBytes, progress, [&](std::size_t first, std::size_t last) {
    read_part(file.get(), buffer.data(), first, last, name);
  });
  return buffer;
}

// Maps the whole file. Returns false if too many pages are small, tested on the file's beginning
// first. The page cache has huge pages of files that were written in blocks of 2 MB (AtomicFile) or
// are read through this mapping in order, if the file system supports them.
bool map_in_huge_pages(std::span<const std::byte> file, const LoadProgress& progress) {
  const auto map = [&](std::size_t bytes, const LoadProgress& report) {
    for_each_part(bytes, kMapBytes, report, [&](std::size_t first, std::size_t last) {
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

bool should_read(const LoadOptions& options, std::span<const std::byte> mapping) {
  if (mapping.empty() || options.mode == LoadMode::map) return false;
  return options.mode == LoadMode::read ||
         (has_room(options, mapping.size()) && !map_in_huge_pages(mapping, options.progress));
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
  require(::mlock(bytes.data(), bytes.size()) == 0, ErrorKind::no_memory, name, ": cannot lock ",
          bytes.size(), " bytes in memory: ", std::strerror(errno), "; raise `ulimit -l` or drop ",
          Setting{"lock"});
}

std::optional<std::uint64_t> available_memory() {
  const auto available = system_available();
  const auto left = read_control_groups().bytes;
  return available && left ? std::min(*available, *left) : available;
}

LoadedFile::LoadedFile(const std::filesystem::path& path, const LoadOptions& options,
                       const std::function<void(std::span<const std::byte>)>& check)
    : mapping_(path) {
  const std::size_t size = mapping_->bytes().size();
  ask_for_huge_pages(mapping_->bytes().data(), size);
  check(mapping_->bytes());
  mapping_->require_whole();
  if (should_read(options, mapping_->bytes())) {
    mapping_.reset();
    buffer_ = read_whole(path, size, options.progress);
  }
  if (!options.lock) return;
  if (mapping_) {
    mapping_->lock();
  } else {
    lock_memory(buffer_.bytes(), path.string());
  }
}

std::span<const std::byte> LoadedFile::bytes() const {
  return mapping_ ? mapping_->bytes() : std::span<const std::byte>(buffer_.bytes());
}

}  // namespace leq
