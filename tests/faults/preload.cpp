// A library for LD_PRELOAD, used only by tests: it counts a program's system calls and makes one of
// them fail, as specified in a block of shared memory. It ignores calls before main().
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <pthread.h>

#include "faults/fault_block.h"

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace leq::faults {
namespace {

FaultBlock* g_block = nullptr;
std::atomic<bool> g_armed = false;
__thread bool t_inside = false;  // backtrace() may allocate

constexpr int kFrames = 10, kOwnFrames = 2;
constexpr std::size_t kSites = 1 << 15;
std::atomic<std::uint64_t> g_sites[kSites];

std::atomic<std::uint64_t>& count_of(Call call) {
  return g_block->counts[static_cast<std::size_t>(call)];
}

// Returns true if this call is the one that must fail.
bool is_the_one(Call call) {
  const std::uint64_t number = ++count_of(call);
  return g_block->call == static_cast<std::uint32_t>(call) && number == g_block->at;
}

How how() { return static_cast<How>(g_block->how); }

void meet() {
  g_block->reached = 1;
  if (how() == How::kill) ::kill(::getpid(), SIGKILL);
  while (how() == How::wait && g_block->go == 0) ::usleep(1000);
}

struct Decision {
  bool fails = false, shortened = false, kills_after = false;
};

constexpr Call kNoOther = Call::count_of;

// Decides whether a call of kind `call`, which may also count as kind `also`, fails.
Decision decide(Call call, Call also) {
  Decision decision;
  if (!g_armed || t_inside) return decision;
  const bool one = is_the_one(call);
  const bool other = also != kNoOther && is_the_one(also);
  if (!one && !other) return decision;
  meet();
  decision.fails = how() == How::error;
  decision.shortened = how() == How::shortened;
  decision.kills_after = how() == How::kill_after;
  if (decision.fails) errno = g_block->error;
  return decision;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// Calls `real()` unless the call must fail, in which case `failed` is returned.
template <class Result, class Real>
Result guarded(Call call, Call also, Result failed, const Real& real) {
  const Decision decision = decide(call, also);
  if (decision.fails) return failed;
  const Result result = real();
  if (decision.kills_after) ::kill(::getpid(), SIGKILL);
  return result;
}

// Pipes and events that wake threads of the process cannot fail like a file on a full disk.
bool wakes(int descriptor) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || (status.st_mode & S_IFMT) == 0;
}

template <class Real>
ssize_t transferred(Call call, Call also, int descriptor, std::size_t size, const Real& real) {
  // Writes to standard error never fail, because errors are reported there.
  if (descriptor == STDERR_FILENO || wakes(descriptor)) return real(size);
  const Decision decision = decide(call, also);
  if (decision.fails) return -1;
  const ssize_t result = real(decision.shortened && size > 1 ? size / 2 : size);
  if (decision.kills_after) ::kill(::getpid(), SIGKILL);
  return result;
}

// OpenSSL crashes if it cannot allocate its own tables, which its callers cannot prevent.
bool is_beyond_help(void* const* frames, int count) {
  for (int i = kOwnFrames; i < count; ++i) {
    Dl_info info = {};
    if (::dladdr(frames[i], &info) == 0 || info.dli_fname == nullptr) continue;
    if (std::strstr(info.dli_fname, "libcrypto") != nullptr) return true;
  }
  return false;
}

// Files written since their last fsync, by inode; one writer at a time is the rule, so a lock
// suffices.
constexpr std::size_t kFiles = 256;
pthread_mutex_t g_files_lock = PTHREAD_MUTEX_INITIALIZER;
ino_t g_unsynced[kFiles];

// Returns whether the regular file was in the list, and enters or removes it.
bool list_unsynced(const struct stat& status, bool enter) {
  if (!S_ISREG(status.st_mode)) return false;
  ::pthread_mutex_lock(&g_files_lock);
  ino_t* found = nullptr;
  ino_t* empty = nullptr;
  for (ino_t& each : g_unsynced) {
    if (each == status.st_ino) found = &each;
    if (each == 0 && empty == nullptr) empty = &each;
  }
  const bool was_in = found != nullptr;
  if (enter && !was_in) {
    if (empty == nullptr) std::abort();
    *empty = status.st_ino;
  }
  if (!enter && was_in) *found = 0;
  ::pthread_mutex_unlock(&g_files_lock);
  return was_in;
}

void list_unsynced(int descriptor, bool enter) {
  struct stat status = {};
  if (g_armed && ::fstat(descriptor, &status) == 0) list_unsynced(status, enter);
}

void check_named(int folder, const char* path, int flags) {
  struct stat status = {};
  const int follow = (flags & AT_SYMLINK_FOLLOW) != 0 ? 0 : AT_SYMLINK_NOFOLLOW;
  if (g_armed && ::fstatat(folder, path, &status, follow) == 0 && list_unsynced(status, false)) {
    ++g_block->named_unsynced;
  }
}

// Number of bytes of a write for which the disk has room.
std::size_t room_for(int descriptor, std::size_t size) {
  struct stat status = {};
  if (!g_armed || ::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) return size;
  const std::uint64_t before = count_of(Call::file_bytes).fetch_add(size);
  if (g_block->call != static_cast<std::uint32_t>(Call::file_bytes)) return size;
  if (before + size < g_block->at) return size;
  g_block->reached = 1;
  return before >= g_block->at ? 0 : static_cast<std::size_t>(g_block->at - 1 - before);
}

// A write of `size` bytes by real(some).
template <class Real>
ssize_t written(int descriptor, std::size_t size, const Real& real) {
  list_unsynced(descriptor, true);
  const std::size_t room = room_for(descriptor, size);
  if (room == 0 && size > 0) {
    errno = ENOSPC;
    return -1;
  }
  return transferred(Call::write, Call::change, descriptor, room, real);
}

// Returns true for the first call from a given chain of callers.
bool new_site() {
  void* frames[kFrames];
  const int count = ::backtrace(frames, kFrames);
  std::uint64_t hash = 0x9e3779b97f4a7c15u;
  for (int i = kOwnFrames; i < count; ++i) {
    hash = (hash ^ reinterpret_cast<std::uint64_t>(frames[i])) * 0xd1342543de82ef95u;
    hash ^= hash >> 29;
  }
  if (hash == 0) hash = 1;
  for (std::size_t i = hash % kSites, probes = 0; probes < kSites; ++probes, i = (i + 1) % kSites) {
    std::uint64_t empty = 0;
    if (g_sites[i].compare_exchange_strong(empty, hash)) return !is_beyond_help(frames, count);
    if (empty == hash) return false;
  }
  return false;
}

bool allocation_fails() {
  if (!g_armed || t_inside) return false;
  t_inside = true;
  bool one = is_the_one(Call::allocate);
  if (new_site()) one |= is_the_one(Call::allocate_site);
  t_inside = false;
  if (!one) return false;
  meet();
  errno = ENOMEM;
  return how() == How::error;
}

__attribute__((constructor)) void map_block() {
  const char* path = std::getenv(kBlockVariable);
  if (path == nullptr) return;
  const int descriptor =
      static_cast<int>(next<int(const char*, int, ...)>("open")(path, O_RDWR | O_CLOEXEC));
  if (descriptor < 0) std::abort();
  void* mapped = next<decltype(::mmap)>("mmap")(nullptr, sizeof(FaultBlock), PROT_READ | PROT_WRITE,
                                                MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) std::abort();
  next<decltype(::close)>("close")(descriptor);
  g_block = static_cast<FaultBlock*>(mapped);
  void* frames[kFrames];
  ::backtrace(frames, kFrames);  // loads the libraries it needs
}

using Main = int (*)(int, char**, char**);
Main g_main = nullptr;

int armed_main(int argc, char** argv, char** environment) {
  g_armed = g_block != nullptr;
  return g_main(argc, argv, environment);
}

int opened(int folder, const char* path, int flags, mode_t mode) {
  const bool creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return guarded(Call::open, creates ? Call::change : kNoOther, -1, [&] {
    static const auto real = next<int(int, const char*, int, ...)>("openat");
    return real(folder, path, flags, mode);
  });
}

mode_t mode_of(int flags, va_list list) {
  return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(list, mode_t) : 0;
}

}  // namespace
}  // namespace leq::faults

using namespace leq::faults;

extern "C" {

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  g_main = main;
  using Start = int(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  return next<Start>("__libc_start_main")(armed_main, argc, argv, init, fini, rtld_fini, stack_end);
}

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return opened(AT_FDCWD, path, flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));
int openat(int folder, const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const mode_t mode = mode_of(flags, list);
  va_end(list);
  return opened(folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) __attribute__((alias("openat")));

ssize_t read(int descriptor, void* to, size_t size) {
  static const auto real = next<ssize_t(int, void*, size_t)>("read");
  return transferred(Call::read, kNoOther, descriptor, size,
                     [&](size_t some) { return real(descriptor, to, some); });
}
ssize_t pread(int descriptor, void* to, size_t size, off_t offset) {
  static const auto real = next<ssize_t(int, void*, size_t, off_t)>("pread");
  return transferred(Call::read, Call::read_at, descriptor, size,
                     [&](size_t some) { return real(descriptor, to, some, offset); });
}
ssize_t pread64(int descriptor, void* to, size_t size, off64_t offset) {
  return pread(descriptor, to, size, offset);
}
ssize_t write(int descriptor, const void* from, size_t size) {
  static const auto real = next<ssize_t(int, const void*, size_t)>("write");
  return written(descriptor, size, [&](size_t some) { return real(descriptor, from, some); });
}
ssize_t pwrite(int descriptor, const void* from, size_t size, off_t offset) {
  static const auto real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return written(descriptor, size,
                 [&](size_t some) { return real(descriptor, from, some, offset); });
}
ssize_t pwrite64(int descriptor, const void* from, size_t size, off64_t offset) {
  return pwrite(descriptor, from, size, offset);
}

int fsync(int descriptor) {
  static const auto real = next<int(int)>("fsync");
  list_unsynced(descriptor, false);
  return guarded(Call::sync, Call::change, -1, [&] { return real(descriptor); });
}
int fdatasync(int descriptor) {
  static const auto real = next<int(int)>("fdatasync");
  list_unsynced(descriptor, false);
  return guarded(Call::sync, Call::change, -1, [&] { return real(descriptor); });
}
int rename(const char* from, const char* to) {
  static const auto real = next<int(const char*, const char*)>("rename");
  check_named(AT_FDCWD, from, 0);
  return guarded(Call::rename, Call::change, -1, [&] { return real(from, to); });
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  static const auto real = next<int(int, const char*, int, const char*, int)>("linkat");
  check_named(from_folder, from, flags);
  return guarded(Call::link, Call::change, -1,
                 [&] { return real(from_folder, from, to_folder, to, flags); });
}
int ftruncate(int descriptor, off_t size) {
  static const auto real = next<int(int, off_t)>("ftruncate");
  list_unsynced(descriptor, true);
  return guarded(Call::truncate, Call::change, -1, [&] { return real(descriptor, size); });
}
int ftruncate64(int descriptor, off64_t size) { return ftruncate(descriptor, size); }

void* mmap(void* at, size_t size, int protection, int flags, int descriptor, off_t offset) {
  static const auto real = next<void*(void*, size_t, int, int, int, off_t)>("mmap");
  return guarded(Call::map, kNoOther, MAP_FAILED,
                 [&] { return real(at, size, protection, flags, descriptor, offset); });
}
void* mmap64(void* at, size_t size, int protection, int flags, int descriptor, off64_t offset) {
  return mmap(at, size, protection, flags, descriptor, offset);
}
int flock(int descriptor, int operation) {
  static const auto real = next<int(int, int)>("flock");
  return guarded(Call::lock, kNoOther, -1, [&] { return real(descriptor, operation); });
}
// The kernel closes the descriptor even if close() fails.
int close(int descriptor) {
  static const auto real = next<int(int)>("close");
  const Decision decision = decide(Call::close, kNoOther);
  const int error = errno;
  const int result = real(descriptor);
  if (!decision.fails) return result;
  errno = error;
  return -1;
}
int mkdir(const char* path, mode_t mode) {
  static const auto real = next<int(const char*, mode_t)>("mkdir");
  return guarded(Call::make_folder, Call::change, -1, [&] { return real(path, mode); });
}
int unlink(const char* path) {
  static const auto real = next<int(const char*)>("unlink");
  return guarded(Call::remove, Call::change, -1, [&] { return real(path); });
}
int unlinkat(int folder, const char* path, int flags) {
  static const auto real = next<int(int, const char*, int)>("unlinkat");
  return guarded(Call::remove, Call::change, -1, [&] { return real(folder, path, flags); });
}
int rmdir(const char* path) {
  static const auto real = next<int(const char*)>("rmdir");
  return guarded(Call::remove, Call::change, -1, [&] { return real(path); });
}
int remove(const char* path) {
  static const auto real = next<int(const char*)>("remove");
  return guarded(Call::remove, Call::change, -1, [&] { return real(path); });
}

int accept4(int descriptor, sockaddr* address, socklen_t* length, int flags) {
  static const auto real = next<int(int, sockaddr*, socklen_t*, int)>("accept4");
  return guarded(Call::accept, kNoOther, -1,
                 [&] { return real(descriptor, address, length, flags); });
}
ssize_t recv(int descriptor, void* to, size_t size, int flags) {
  static const auto real = next<ssize_t(int, void*, size_t, int)>("recv");
  return transferred(Call::receive, kNoOther, descriptor, size,
                     [&](size_t some) { return real(descriptor, to, some, flags); });
}
ssize_t send(int descriptor, const void* from, size_t size, int flags) {
  static const auto real = next<ssize_t(int, const void*, size_t, int)>("send");
  return transferred(Call::send, kNoOther, descriptor, size,
                     [&](size_t some) { return real(descriptor, from, some, flags); });
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = next<Create>("pthread_create");
  const int error = g_block == nullptr ? 0 : g_block->error;
  return guarded(Call::thread, kNoOther, error,
                 [&] { return real(thread, attributes, run, argument); });
}

void* malloc(size_t size) { return allocation_fails() ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return allocation_fails() ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  return allocation_fails() ? nullptr : __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  return allocation_fails() ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** to, size_t alignment, size_t size) {
  if (allocation_fails()) return ENOMEM;
  void* got = __libc_memalign(alignment, size);
  if (got == nullptr) return ENOMEM;
  *to = got;
  return 0;
}

}  // extern "C"
