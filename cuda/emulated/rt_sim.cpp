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
#include <thread>

#include "base/error.h"
#include "cuda/emulated/emulated_device.h"
#include "cuda/words/run.h"

namespace leq::LEQ_GPU::rt {

namespace {

// Kernels begin early after kernels and, where nothing says that CUDA makes them wait, after
// copies and fills; after the mark or wait of an event none does.
enum class Sort : std::uint8_t { kernel, copy, event };

// `body`: of a kernel, what one thread does.
struct Operation {
  std::function<void()> body;
  Sort sort = Sort::copy;
  simt::Grid grid;
};

}  // namespace

struct Stream {
  std::deque<Operation> operations;
  std::deque<simt::EarlyBlockOwner> begun;  // of the first operations, which are kernels
  bool capturing = false;
  std::thread::id capturer;
  std::vector<Operation> captured;
  const char* refused = nullptr;  // what the capturer did that CUDA does not allow
};

struct Graph {
  std::vector<Operation> operations;
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
  int failing_captures = 0;
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

// What may begin before the operation that runs now has ended: the kernel after it, and after a
// kernel that lets its successor start before it waits itself, the next one too.
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
  if (operation.sort != Sort::kernel) return operation.body();
  simt::run_grid(operation.grid, operation.body, std::move(begun));
}

std::uint64_t next_random() {
  Runtime& all = runtime();
  all.random =
      (all.random + simt::schedule().seed) * 6364136223846793005ull + 1442695040888963407ull;
  return all.random;
}

// Some operations of other streams first: nothing orders them.
void run_others(const Stream& waited) {
  for (Stream* stream : runtime().streams) {
    if (stream != &waited && !stream->operations.empty() && (next_random() >> 62) != 0) {
      run_first(*stream, false);
    }
  }
}

void give(Stream& stream, Operation operation) {
  const std::lock_guard hold(runtime().lock);
  if (stream.capturing) return stream.captured.push_back(std::move(operation));
  stream.operations.push_back(std::move(operation));
}

// Whether this thread records: then `what` is not allowed, and the recording is worth nothing.
bool refuse(const char* what) {
  const std::lock_guard hold(runtime().lock);
  bool refused = false;
  for (Stream* stream : runtime().streams) {
    if (!stream->capturing || stream->capturer != std::this_thread::get_id()) continue;
    stream->refused = what;
    refused = true;
  }
  return refused;
}
void require_no_capture(const char* what) {
  ensure(!refuse(what), "emulated GPU: ", what, " while a stream records");
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
  give(stream, {[=] { std::memcpy(to, from, bytes); }, Sort::copy, {}});
}

// What lies before the mark was given to its stream before anything that waits for it, so this
// ends.
void run_until(const Event& event, std::uint64_t mark, Stream* stream) {
  while (event.reached < mark) run_first(*stream, false);
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

void fail_captures(int count) {
  const std::lock_guard hold(runtime().lock);
  runtime().failing_captures = count;
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
  require_no_capture("a wait");
  const std::lock_guard hold(runtime().lock);
  // By the schedule's seed, other streams get on meanwhile or not.
  const bool meanwhile = simt::schedule().seed != 0 && (next_random() >> 63) != 0;
  while (!stream.operations.empty()) {
    if (meanwhile) run_others(stream);
    run_first(stream, true);
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
  const auto reach = [&event, mark = ++event.recorded] {
    event.reached = mark;
    event.when = std::chrono::steady_clock::now();
  };
  give(stream, {reach, Sort::event, {}});
}

void wait(Stream& stream, Event& event) {
  const std::lock_guard hold(runtime().lock);
  if (event.recorded == 0 || event.stream == &stream) return;
  const auto reach = [&event, mark = event.recorded, from = event.stream] {
    run_until(event, mark, from);
  };
  give(stream, {reach, Sort::event, {}});
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
  require_no_capture("an allocation");
  if (!take_device_bytes(bytes)) return nullptr;
  void* data = take(bytes);
  const std::lock_guard hold(runtime().lock);
  if (data != nullptr) runtime().device[data] = bytes;
  return data;
}

void release(int, void* data) noexcept {
  if (data == nullptr || refuse("a release of memory")) return;
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

void* allocate_pinned(std::size_t bytes) {
  require_no_capture("an allocation");
  return take(bytes);
}
void release_pinned(void* data) noexcept {
  if (!refuse("a release of memory")) give_back(data);
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
  const simt::Grid grid = {launch.kernel,       code,
                           launch.blocks,       launch.threads,
                           launch.shared_bytes, emulated_device().shared_limit_bytes,
                           launch.cluster,      launch.start == Start::early};
  give(stream, {std::move(thread), Sort::kernel, grid});
}

void GraphCloser::operator()(Graph* graph) const noexcept { delete graph; }

void begin_capture(Stream& stream) {
  stream.capturing = true;
  stream.capturer = std::this_thread::get_id();
  stream.refused = nullptr;
}

GraphOwner end_capture(Stream& stream) {
  GraphOwner graph(new Graph{std::move(stream.captured)});
  drop_capture(stream);
  ensure(stream.refused == nullptr, "emulated GPU: ", stream.refused, " while a stream records");
  if (runtime().failing_captures > 0) {
    --runtime().failing_captures;
    fail(ErrorKind::no_device, "emulated GPU: this recording fails");
  }
  return graph;
}

void drop_capture(Stream& stream) noexcept {
  stream.capturing = false;
  stream.captured.clear();
}

bool is_capturing(const Stream& stream) { return stream.capturing; }

void launch(const Graph& graph, Stream& stream) {
  for (const Operation& operation : graph.operations) give(stream, operation);
}

}  // namespace leq::LEQ_GPU::rt
