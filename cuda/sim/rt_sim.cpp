// The runtime on the emulator: device memory is host memory, a stream is a list of operations that
// run when something waits for it, so that code which forgets to wait reads old numbers here too.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "cuda/run.h"

namespace leq::LEQ_GPU::rt {

namespace {

// A copy or fill, or the threads of a kernel.
struct Operation {
  std::function<void()> body;
  bool is_kernel = false;
  simt::Grid grid;
};

}  // namespace

struct Stream {
  std::deque<Operation> operations;
  simt::EarlyBlockOwner begun;  // of the first operation
  bool capturing = false;
  std::thread::id capturer;
  std::vector<Operation> captured;
  const char* refused = nullptr;  // what the capturer did that CUDA does not allow
};

struct Graph {
  std::vector<Operation> operations;
};

namespace {

constexpr int kFresh = 0xcd, kFreed = 0xdb;  // what new and released memory holds

struct Runtime {
  std::recursive_mutex lock;
  std::vector<Stream*> streams;
  std::map<void*, std::size_t> memory;
  std::vector<void*> released;  // poisoned, freed when no operation is left that might read it
  std::uint64_t random = 0;
};

Runtime& runtime() {
  static Runtime instance;
  return instance;
}

const DeviceInfo& emulated_device() {
  // The smallest shared memory of the architectures that are built for (8.9, 12.0).
  static const DeviceInfo info = {"emulated GPU",       8, 9, 4, std::size_t{99} << 10,
                                  std::size_t{64} << 30};
  return info;
}

// A kernel that may begin early and stands behind a kernel has begun before that one runs.
void run_first(Stream& stream, bool drains) {
  const Operation operation = std::move(stream.operations.front());
  stream.operations.pop_front();
  simt::EarlyBlockOwner begun = std::move(stream.begun);
  if (!operation.is_kernel) return operation.body();
  if (drains && !stream.operations.empty() && stream.operations.front().grid.early) {
    stream.begun =
        simt::begin_early(stream.operations.front().grid, stream.operations.front().body);
  }
  simt::run_grid(operation.grid, operation.body, std::move(begun));
}

// By the schedule's seed, some operations of other streams first: nothing orders them.
void run_others(const Stream& waited) {
  Runtime& all = runtime();
  const std::uint64_t seed = simt::schedule().seed;
  if (seed == 0) return;
  for (Stream* stream : all.streams) {
    all.random = (all.random + seed) * 6364136223846793005ull + 1442695040888963407ull;
    if (stream != &waited && !stream->operations.empty() && (all.random >> 62) != 0) {
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
  require(!refuse(what), "emulated GPU: ", what, " while a stream records");
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
  give(stream, {[=] { std::memcpy(to, from, bytes); }, false, {}});
}

}  // namespace

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
  while (!stream.operations.empty()) {
    run_others(stream);
    run_first(stream, true);
  }
  free_released();
}

void* allocate(int, std::size_t bytes) {
  require_no_capture("an allocation");
  return take(bytes);
}

void release(int, void* data) noexcept {
  if (data == nullptr || refuse("a release of memory")) return;
  const std::lock_guard hold(runtime().lock);
  for (Stream* stream : runtime().streams) synchronize(*stream);
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
  give(stream, {[=] { std::memset(device, 0, bytes); }, false, {}});
}

void enqueue(Stream& stream, const Launch& launch, std::function<void()> thread) {
  give(stream, {std::move(thread),
                true,
                {launch.kernel, launch.blocks, launch.threads, launch.shared_bytes,
                 emulated_device().shared_limit_bytes, launch.start == Start::early}});
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
  require(stream.refused == nullptr, "emulated GPU: ", stream.refused, " while a stream records");
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
