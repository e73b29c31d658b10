// The runtime on the emulator: device memory is host memory, a stream is a list of operations that
// run when something waits for it, so that code which forgets to wait reads old numbers here too.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>

#include "cuda/run.h"
#include "cuda/sim/emulated_device.h"

namespace leq::LEQ_GPU::rt {

struct Stream {
  std::deque<std::function<void()>> operations;
};
struct Event {
  std::uint64_t recorded = 0, reached = 0;  // how often the host recorded it, the stream got there
  Stream* stream = nullptr;                 // of the last record
  std::chrono::steady_clock::time_point when;
};
struct Region {
  std::size_t bytes = 0;
};

namespace {

constexpr int kFresh = 0xcd, kFreed = 0xdb;  // what new and released memory holds

struct Runtime {
  std::recursive_mutex lock;
  std::vector<Stream*> streams;
  std::map<void*, std::size_t> memory;
  std::vector<void*> released;  // poisoned, freed when no operation is left that might read it
  std::map<void*, std::size_t> device;               // allocations that count as the device's
  std::size_t device_bytes = std::size_t{64} << 30;  // the device's memory
  std::size_t device_in_use = 0;
  std::uint64_t random = 0;
};

Runtime& runtime() {
  static Runtime instance;
  return instance;
}

bool take_device_bytes(std::size_t bytes) {
  const std::lock_guard hold(runtime().lock);
  Runtime& all = runtime();
  if (all.device_in_use > all.device_bytes || bytes > all.device_bytes - all.device_in_use) {
    return false;
  }
  all.device_in_use += bytes;
  return true;
}

void run_first(Stream& stream) {
  const std::function<void()> operation = std::move(stream.operations.front());
  stream.operations.pop_front();
  operation();
}

// By the schedule's seed, some operations of other streams first: nothing orders them.
void run_others(const Stream& waited) {
  Runtime& all = runtime();
  const std::uint64_t seed = simt::schedule().seed;
  if (seed == 0) return;
  for (Stream* stream : all.streams) {
    all.random = (all.random + seed) * 6364136223846793005ull + 1442695040888963407ull;
    if (stream != &waited && !stream->operations.empty() && (all.random >> 62) != 0) {
      run_first(*stream);
    }
  }
}

void give(Stream& stream, std::function<void()> operation) {
  const std::lock_guard hold(runtime().lock);
  stream.operations.push_back(std::move(operation));
}

void* take(std::size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, 256, bytes == 0 ? 1 : bytes) != 0) return nullptr;
  std::memset(data, kFresh, bytes);
  const std::lock_guard hold(runtime().lock);
  runtime().memory[data] = bytes;
  return data;
}

void free_released() {
  Runtime& all = runtime();
  for (const Stream* stream : all.streams) {
    if (!stream->operations.empty()) return;
  }
  for (void* data : all.released) std::free(data);
  all.released.clear();
}

void give_back(void* data) noexcept {
  if (data == nullptr) return;
  const std::lock_guard hold(runtime().lock);
  const auto found = runtime().memory.find(data);
  std::memset(data, kFreed, found->second);
  runtime().memory.erase(found);
  runtime().released.push_back(data);
  free_released();
}

void copy(void* to, const void* from, std::size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  give(stream, [=] { std::memcpy(to, from, bytes); });
}

// What lies before the mark was given to its stream before anything that waits for it, so this
// ends.
void run_until(const Event& event, std::uint64_t mark, Stream* stream) {
  while (event.reached < mark) run_first(*stream);
}

void synchronize_all() {
  for (Stream* stream : runtime().streams) synchronize(*stream);
}

}  // namespace

DeviceInfo& emulated_device() {
  // The smallest shared memory of the architectures that are built for (8.9, 12.0).
  static DeviceInfo info = {
      .name = "emulated GPU",
      .major = 8,
      .minor = 9,
      .multiprocessors = 4,
      .shared_limit_bytes = std::size_t{99} << 10,
      .memory_bytes = std::size_t{64} << 30,
      .uuid = "GPU-00000000-0000-0000-0000-000000000000",
  };
  return info;
}

void set_emulated_memory(std::size_t bytes) {
  const std::lock_guard hold(runtime().lock);
  runtime().device_bytes = bytes;
}

std::vector<DeviceInfo> devices() { return {emulated_device()}; }
std::string why_no_device() { return {}; }
const DeviceInfo& device_of(const Stream&) { return emulated_device(); }

StreamOwner make_stream(int) {
  StreamOwner stream(new Stream);
  const std::lock_guard hold(runtime().lock);
  runtime().streams.push_back(stream.get());
  return stream;
}

void StreamCloser::operator()(Stream* stream) const noexcept {
  const std::lock_guard hold(runtime().lock);
  std::erase(runtime().streams, stream);
  delete stream;
}

void synchronize(Stream& stream) {
  const std::lock_guard hold(runtime().lock);
  while (!stream.operations.empty()) {
    run_others(stream);
    run_first(stream);
  }
  free_released();
}

MemoryInfo memory_of(int) {
  const std::lock_guard hold(runtime().lock);
  const Runtime& all = runtime();
  return {all.device_bytes - std::min(all.device_bytes, all.device_in_use), all.device_bytes};
}

EventOwner make_event(int) { return EventOwner(new Event); }

// Operations that name the event may still wait to run.
void EventCloser::operator()(Event* event) const noexcept {
  const std::lock_guard hold(runtime().lock);
  synchronize_all();
  delete event;
}

void record(Event& event, Stream& stream) {
  const std::lock_guard hold(runtime().lock);
  event.stream = &stream;
  give(stream, [&event, mark = ++event.recorded] {
    event.reached = mark;
    event.when = std::chrono::steady_clock::now();
  });
}

void wait(Stream& stream, Event& event) {
  const std::lock_guard hold(runtime().lock);
  if (event.recorded == 0 || event.stream == &stream) return;
  give(stream,
       [&event, mark = event.recorded, from = event.stream] { run_until(event, mark, from); });
}

void synchronize(Event& event) {
  const std::lock_guard hold(runtime().lock);
  if (event.recorded > 0) run_until(event, event.recorded, event.stream);
}

double seconds_between(const Event& from, const Event& to) {
  return std::chrono::duration<double>(to.when - from.when).count();
}

void begin_range(const char*) {}
void end_range() {}

void* allocate(int, std::size_t bytes) {
  if (!take_device_bytes(bytes)) return nullptr;
  void* data = take(bytes);
  const std::lock_guard hold(runtime().lock);
  if (data != nullptr) runtime().device[data] = bytes;
  return data;
}

void release(int, void* data) noexcept {
  if (data == nullptr) return;
  const std::lock_guard hold(runtime().lock);
  synchronize_all();
  const auto found = runtime().device.find(data);
  runtime().device_in_use -= found->second;
  runtime().device.erase(found);
  give_back(data);
}

RegionOwner take_region(int, std::size_t bytes) {
  return RegionOwner(take_device_bytes(bytes) ? new Region{bytes} : nullptr);
}

void RegionCloser::operator()(Region* region) const noexcept {
  const std::lock_guard hold(runtime().lock);
  runtime().device_in_use -= region->bytes;
  delete region;
}

void* begin_block(Region&, std::size_t, std::size_t bytes) {
  void* data = take(bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

void end_block(Region&, void* data) noexcept {
  const std::lock_guard hold(runtime().lock);
  synchronize_all();
  give_back(data);
}

void* allocate_pinned(std::size_t bytes) { return take(bytes); }
void release_pinned(void* data) noexcept { give_back(data); }

void copy_to_device(void* device, const void* pinned, std::size_t bytes, Stream& stream) {
  copy(device, pinned, bytes, stream);
}
void copy_to_host(void* pinned, const void* device, std::size_t bytes, Stream& stream) {
  copy(pinned, device, bytes, stream);
}
void copy_on_device(void* to, const void* from, std::size_t bytes, Stream& stream) {
  copy(to, from, bytes, stream);
}
void fill_zero(void* device, std::size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  give(stream, [=] { std::memset(device, 0, bytes); });
}

void enqueue(Stream& stream, const Launch& launch, const void* code, std::function<void()> thread) {
  const simt::Grid grid = {launch.kernel,       code,
                           launch.blocks,       launch.threads,
                           launch.shared_bytes, emulated_device().shared_limit_bytes,
                           launch.cluster};
  give(stream, [grid, thread = std::move(thread)] { simt::run_grid(grid, thread); });
}

}  // namespace leq::LEQ_GPU::rt
