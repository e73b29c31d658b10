// The runtime on the emulator. Device memory is host memory, and a stream is a list of operations
// that run when the host waits for it, so that code that forgets to wait reads old data here, too.
// Devices are created when they are first used. The streams of one device run on the thread that
// waits; streams of two devices run at the same time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>

#include "base/error.h"
#include "cuda/emulated/emulated_device.h"
#include "cuda/intrinsics/run.h"

namespace leq::LEQ_GPU::rt {

namespace {

// A kernel may start early after a kernel and (because CUDA allows it) after copies and fills, but
// not after an event was recorded or waited for.
enum class Sort : std::uint8_t { kernel, copy, event };

// `body` of a kernel is the code of one thread.
struct Operation {
  std::function<void()> body;
  Sort sort = Sort::copy;
  simt::Grid grid;
};

}  // namespace

struct Stream {
  int device = 0;
  std::deque<Operation> operations;
  std::deque<simt::EarlyBlockOwner> begun;  // early blocks of the first operations (all kernels)
  bool capturing = false;
  std::vector<Operation> captured;
  const char* refused = nullptr;  // call during the capture that CUDA does not allow
};

struct Graph {
  std::vector<Operation> operations;
};
struct Event {
  int device = 0;
  std::uint64_t recorded = 0, reached = 0;  // count of records by the host and by the stream
  Stream* stream = nullptr;                 // stream of the last record
  std::chrono::steady_clock::time_point when;
};
struct Region {
  int device = 0;
  std::size_t bytes = 0;
};

namespace {

constexpr int kFresh = 0xcd, kFreed = 0xdb;  // bytes of new and of released memory

struct Device {
  std::recursive_mutex lock;  // guards its streams and their operations
  std::vector<Stream*> streams;
  std::uint64_t random = 0;
  std::size_t in_use = 0;  // bytes, guarded by memory_lock
};

struct Runtime {
  std::mutex lock;  // guards `devices`
  std::map<int, Device> devices;
  std::mutex memory_lock;  // guards the members below
  std::map<void*, std::size_t> memory;
  std::vector<void*> released;  // poisoned; freed when no operation can read it any more
  std::map<void*, std::size_t> allocations;          // counted as a device's memory
  std::size_t device_bytes = std::size_t{64} << 30;  // each device's memory
  int failing_captures = 0;
  int launches_to_failure = -1;             // below 0: no launch fails
  std::atomic<std::int64_t> operations{0};  // number on all streams
};

Runtime& runtime() {
  static Runtime instance;
  return instance;
}

Device& device(int index) {
  const std::lock_guard hold(runtime().lock);
  return runtime().devices[index];
}
std::unique_lock<std::recursive_mutex> hold_device(int index) {
  return std::unique_lock(device(index).lock);
}

// The stream that this thread records; null if it does not record.
thread_local Stream* recorded = nullptr;

bool take_device_bytes(int index, std::size_t bytes) {
  Device& of = device(index);
  const std::lock_guard hold(runtime().memory_lock);
  const std::size_t most = runtime().device_bytes;
  if (of.in_use > most || bytes > most - of.in_use) return false;
  of.in_use += bytes;
  return true;
}
void give_device_bytes(int index, std::size_t bytes) {
  Device& of = device(index);
  const std::lock_guard hold(runtime().memory_lock);
  of.in_use -= bytes;
}

// Begins kernels that may overlap with the operation about to run: the next one if it may start
// early, then each further early kernel whose predecessor let its successor start before waiting.
void begin_successors(Stream& stream) {
  auto& begun = stream.begun;
  while (begun.size() < stream.operations.size()) {
    const Operation& next = stream.operations[begun.size()];
    if (!next.grid.early) return;
    if (!begun.empty() && !simt::lets_successor_start(*begun.back())) return;
    begun.push_back(simt::begin_early(next.grid, next.body));
  }
}

void run_first(Stream& stream, bool drains) {
  const Operation operation = std::move(stream.operations.front());
  stream.operations.pop_front();
  simt::EarlyBlockOwner begun;
  if (!stream.begun.empty()) {
    begun = std::move(stream.begun.front());
    stream.begun.pop_front();
  }
  if (drains && operation.sort != Sort::event) begin_successors(stream);
  if (operation.sort == Sort::kernel) {
    simt::run_grid(operation.grid, operation.body, std::move(begun));
  } else {
    operation.body();
  }
  runtime().operations.fetch_sub(1);
}

std::uint64_t next_random(Device& of) {
  of.random = (of.random + simt::schedule().seed) * 6364136223846793005ull + 1442695040888963407ull;
  return of.random;
}

// First runs some operations of the device's other streams, as their order is undefined.
void run_others(const Stream& waited) {
  Device& own = device(waited.device);
  for (Stream* stream : own.streams) {
    if (stream != &waited && !stream->operations.empty() && (next_random(own) >> 62) != 0) {
      run_first(*stream, false);
    }
  }
}

void give(Stream& stream, Operation operation) {
  const auto hold = hold_device(stream.device);
  if (stream.capturing) return stream.captured.push_back(std::move(operation));
  runtime().operations.fetch_add(1);
  stream.operations.push_back(std::move(operation));
}

// Returns whether this thread records; if so, `what` is not allowed and the recording fails.
bool refuse(const char* what) {
  if (recorded == nullptr) return false;
  recorded->refused = what;
  return true;
}
void require_no_capture(const char* what) {
  ensure(!refuse(what), "emulated GPU: ", what, " while a stream records");
}

void* take(std::size_t bytes) {
  void* data = nullptr;
  if (posix_memalign(&data, 256, bytes == 0 ? 1 : bytes) != 0) return nullptr;
  std::memset(data, kFresh, bytes);
  const std::lock_guard hold(runtime().memory_lock);
  runtime().memory[data] = bytes;
  return data;
}

// The caller must hold memory_lock.
void free_released() {
  Runtime& all = runtime();
  if (all.operations.load() > 0) return;
  for (void* data : all.released) std::free(data);
  all.released.clear();
}

void free_block(void* data) noexcept {
  if (data == nullptr) return;
  const std::lock_guard hold(runtime().memory_lock);
  const auto found = runtime().memory.find(data);
  std::memset(data, kFreed, found->second);
  runtime().memory.erase(found);
  runtime().released.push_back(data);
  free_released();
}

void copy(void* to, const void* from, std::size_t bytes, Stream& stream) {
  if (bytes == 0) return;
  give(stream, {[=] { std::memcpy(to, from, bytes); }, Sort::copy, {}});
}

// This loop ends, because the work before the mark was added to its stream before any operation
// that waits for it.
void run_until(const Event& event, std::uint64_t mark, Stream* stream) {
  while (event.reached < mark) run_first(*stream, false);
}

// Counts launches, but not those that are only recorded.
void count_launch(const Stream& stream) {
  if (stream.capturing) return;
  const std::lock_guard hold(runtime().memory_lock);
  int& left = runtime().launches_to_failure;
  if (left >= 0 && left-- == 0) fail(ErrorKind::no_device, "emulated GPU: this launch fails");
}

void synchronize_all(int index) {
  Device& of = device(index);
  const std::lock_guard hold(of.lock);
  for (Stream* stream : of.streams) synchronize(*stream);
}

}  // namespace

DeviceInfo& emulated_device() {
  // Shared memory is the smallest of all supported architectures (that of 8.9 and 12.0).
  static DeviceInfo info = {
      .name = "emulated GPU",
      .major = 8,
      .minor = 9,
      .multiprocessors = 4,
      .shared_limit_bytes = std::size_t{99} << 10,
      .memory_bytes = std::size_t{64} << 30,
      .clock_hz = 1e9,
      .uuid = "GPU-00000000-0000-0000-0000-000000000000",
  };
  return info;
}

void set_emulated_memory(std::size_t bytes) {
  const std::lock_guard hold(runtime().memory_lock);
  runtime().device_bytes = bytes;
}

void fail_captures(int count) {
  const std::lock_guard hold(runtime().memory_lock);
  runtime().failing_captures = count;
}

void fail_launch(int others) {
  const std::lock_guard hold(runtime().memory_lock);
  runtime().launches_to_failure = others;
}

std::vector<DeviceInfo> devices() { return {emulated_device()}; }
std::string why_no_device() { return {}; }
const DeviceInfo& device_of(const Stream&) { return emulated_device(); }

StreamOwner make_stream(int index) {
  StreamOwner stream(new Stream);
  stream->device = index;
  Device& of = device(index);
  const std::lock_guard hold(of.lock);
  of.streams.push_back(stream.get());
  return stream;
}

void Closer::operator()(Stream* stream) const noexcept {
  Device& of = device(stream->device);
  const std::lock_guard hold(of.lock);
  std::erase(of.streams, stream);
  runtime().operations.fetch_sub(static_cast<std::int64_t>(stream->operations.size()));
  delete stream;
}

void synchronize(Stream& stream) {
  require_no_capture("a wait");
  Device& of = device(stream.device);
  const std::lock_guard hold(of.lock);
  // The schedule's seed decides whether other streams make progress in the meantime.
  const bool meanwhile = simt::schedule().seed != 0 && (next_random(of) >> 63) != 0;
  while (!stream.operations.empty()) {
    if (meanwhile) run_others(stream);
    run_first(stream, true);
  }
  const std::lock_guard memory(runtime().memory_lock);
  free_released();
}

bool is_idle(Stream& stream) {
  synchronize(stream);
  return true;
}
void use(Stream&) {}
void* library_stream(Stream& stream) { return &stream; }
bool has_libraries() { return false; }

MemoryInfo memory_of(int index) {
  const Device& of = device(index);
  const std::lock_guard hold(runtime().memory_lock);
  const std::size_t most = runtime().device_bytes;
  return {most - std::min(most, of.in_use), most};
}

bool reaches(int, int) { return true; }

EventOwner make_event(int index) {
  EventOwner event(new Event);
  event->device = index;
  return event;
}

// Waits for the device, because operations that use the event may not have run yet.
void Closer::operator()(Event* event) const noexcept {
  synchronize_all(event->device);
  delete event;
}

void record(Event& event, Stream& stream) {
  const auto hold = hold_device(event.device);
  event.stream = &stream;
  const auto reach = [&event, mark = ++event.recorded] {
    event.reached = mark;
    event.when = std::chrono::steady_clock::now();
  };
  give(stream, {reach, Sort::event, {}});
}

void wait(Stream& stream, Event& event) {
  const auto hold = hold_device(event.device);
  if (event.recorded == 0 || event.stream == &stream) return;
  const auto reach = [&event, mark = event.recorded, from = event.stream] {
    run_until(event, mark, from);
  };
  give(stream, {reach, Sort::event, {}});
}

void synchronize(Event& event) {
  const auto hold = hold_device(event.device);
  if (event.recorded > 0) run_until(event, event.recorded, event.stream);
}

double seconds_between(const Event& from, const Event& to) {
  return std::chrono::duration<double>(to.when - from.when).count();
}

void begin_range(const char*) {}
void end_range() {}

void* allocate(int index, std::size_t bytes) {
  require_no_capture("an allocation");
  if (!take_device_bytes(index, bytes)) return nullptr;
  void* data = take(bytes);
  const std::lock_guard hold(runtime().memory_lock);
  if (data != nullptr) runtime().allocations[data] = bytes;
  return data;
}

void release(int index, void* data) noexcept {
  if (data == nullptr || refuse("a release of memory")) return;
  synchronize_all(index);
  std::size_t bytes = 0;
  {
    const std::lock_guard hold(runtime().memory_lock);
    const auto found = runtime().allocations.find(data);
    bytes = found->second;
    runtime().allocations.erase(found);
  }
  give_device_bytes(index, bytes);
  free_block(data);
}

RegionOwner take_region(int index, std::size_t bytes) {
  return RegionOwner(take_device_bytes(index, bytes) ? new Region{index, bytes} : nullptr);
}

void Closer::operator()(Region* region) const noexcept {
  give_device_bytes(region->device, region->bytes);
  delete region;
}

void* begin_block(Region&, std::size_t, std::size_t bytes) {
  void* data = take(bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

void end_block(Region& region, void* data) noexcept {
  synchronize_all(region.device);
  free_block(data);
}

void* allocate_pinned(std::size_t bytes) {
  require_no_capture("an allocation");
  return take(bytes);
}
void release_pinned(void* data) noexcept {
  if (!refuse("a release of memory")) free_block(data);
}

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
  give(stream, {[=] { std::memset(device, 0, bytes); }, Sort::copy, {}});
}

void enqueue(Stream& stream, const Launch& launch, const void* code, std::function<void()> thread) {
  count_launch(stream);
  const simt::Grid grid = {launch.kernel,       code,
                           launch.blocks,       launch.threads,
                           launch.shared_bytes, emulated_device().shared_limit_bytes,
                           launch.cluster,      launch.start == Start::early,
                           stream.device};
  give(stream, {std::move(thread), Sort::kernel, grid});
}

void Closer::operator()(Graph* graph) const noexcept { delete graph; }

void begin_capture(Stream& stream) {
  stream.capturing = true;
  stream.refused = nullptr;
  recorded = &stream;
}

GraphOwner end_capture(Stream& stream) {
  GraphOwner graph(new Graph{std::move(stream.captured)});
  drop_capture(stream);
  ensure(stream.refused == nullptr, "emulated GPU: ", stream.refused, " while a stream records");
  const std::lock_guard hold(runtime().memory_lock);
  if (runtime().failing_captures > 0) {
    --runtime().failing_captures;
    fail(ErrorKind::no_device, "emulated GPU: this recording fails");
  }
  return graph;
}

void drop_capture(Stream& stream) noexcept {
  stream.capturing = false;
  stream.captured.clear();
  recorded = nullptr;
}

bool is_capturing(const Stream& stream) { return stream.capturing; }

void launch(const Graph& graph, Stream& stream) {
  count_launch(stream);
  for (const Operation& operation : graph.operations) give(stream, operation);
}

}  // namespace leq::LEQ_GPU::rt
