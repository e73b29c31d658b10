// The device interface for host code: memory, and copies in order on a stream. Two implementations:
// rt_cuda.cu on the CUDA runtime (LEQ_GPU = cuda), sim/rt_sim.cpp on the emulator (LEQ_GPU = sim).
// Failures throw Error with the runtime's own message. Launches: run.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace leq::LEQ_GPU::rt {

struct DeviceInfo {
  std::string name;          // "NVIDIA H200"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::size_t shared_limit_bytes = 0;  // a block's largest shared memory
  std::size_t memory_bytes = 0;
  double clock_hz = 0;  // frequency of clock64 in kernels
  std::string uuid;     // "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", as nvidia-smi spells it
};
// Empty where there is none; never throws.
std::vector<DeviceInfo> devices();
// The reason why devices() is empty, for users.
std::string why_no_device();

// Whether the environment variable LEQ_GPU_DEBUG, a comma-separated list, contains `word`:
//   no-early   no kernel starts before its predecessor has ended
//   carveout   every kernel prefers the largest shared memory that a multiprocessor can be set to
//   sync       the host waits for every launch, for steps that are not recorded
//   no-wgmma   matmuls on compute capability 9.0 use mma
// They change no result; on hardware they show which mechanism is wrong or slow.
inline bool has_debug_option(std::string_view word) {
  static const char* const words = std::getenv("LEQ_GPU_DEBUG");
  return words != nullptr && std::string_view(words).find(word) != std::string_view::npos;
}

struct MemoryInfo {
  std::size_t free_bytes = 0, total_bytes = 0;
};
MemoryInfo memory_of(int device);
// Whether kernels on `device` can write the memory of `peer`; enables this access.
bool reaches(int device, int peer);

// An ordered queue of work, asynchronous until synchronize.
struct Stream;
struct StreamCloser {
  void operator()(Stream* stream) const noexcept;
};
using StreamOwner = std::unique_ptr<Stream, StreamCloser>;
StreamOwner make_stream(int device);
const DeviceInfo& device_of(const Stream& stream);
void synchronize(Stream& stream);
// Whether all its work has ended. The emulator runs the work first.
bool is_idle(Stream& stream);
// Makes the stream's device current for this thread, above all for calls of libraries.
void use(Stream& stream);
// cudaStream_t for CUDA's libraries, and whether there are any: the emulator has none.
void* library_stream(Stream& stream);
bool has_libraries();

// A marker in a stream's order, with the time when the stream reached it. Waiting for one that was
// never recorded returns at once; a new record replaces the previous one.
struct Event;
struct EventCloser {
  void operator()(Event* event) const noexcept;
};
using EventOwner = std::unique_ptr<Event, EventCloser>;
EventOwner make_event(int device);
void record(Event& event, Stream& stream);
void wait(Stream& stream, Event& event);  // later work of the stream waits, the host does not
void synchronize(Event& event);           // the host waits
// Time between two events that have occurred: their streams were synchronized.
double seconds_between(const Event& from, const Event& to);

// Begins a named range of host work for profilers (NVTX); ranges nest.
void begin_range(const char* name);
void end_range();

// Not zeroed; null where the device has not enough memory. Releasing waits for all work on the
// device.
void* allocate(int device, std::size_t bytes);
void release(int device, void* data) noexcept;

// Memory that is allocated at once and used in blocks at offsets. The emulator counts the whole,
// but allocates each block separately, so that a store past its end is detected.
struct Region;
struct RegionCloser {
  void operator()(Region* region) const noexcept;
};
using RegionOwner = std::unique_ptr<Region, RegionCloser>;
RegionOwner take_region(int device, std::size_t bytes);  // null where there is not enough memory
void* begin_block(Region& region, std::size_t offset, std::size_t bytes);
void end_block(Region& region, void* data) noexcept;

// Host memory that asynchronous copies read and write: it must stay alive and, while a
// copy may read it, unchanged until the stream has been synchronized.
void* allocate_pinned(std::size_t bytes);
void release_pinned(void* data) noexcept;

void copy_to_device(void* device, const void* pinned, std::size_t bytes, Stream& stream);
void copy_to_host(void* pinned, const void* device, std::size_t bytes, Stream& stream);
void copy_on_device(void* to, const void* from, std::size_t bytes, Stream& stream);
void fill_zero(void* device, std::size_t bytes, Stream& stream);

// Launches and copies recorded from a stream, which run again as one. They keep the arguments and
// addresses of the recording; the memory there is read when they run.
struct Graph;
struct GraphCloser {
  void operator()(Graph* graph) const noexcept;
};
using GraphOwner = std::unique_ptr<Graph, GraphCloser>;
// From now on work on the stream is recorded and does not run. Until the end this thread must not
// wait for the stream or allocate or free memory: that fails, and so does the recording.
void begin_capture(Stream& stream);
GraphOwner end_capture(Stream& stream);  // throws Error where an operation was refused
void drop_capture(Stream& stream) noexcept;
bool is_capturing(const Stream& stream);
void launch(const Graph& graph, Stream& stream);

}  // namespace leq::LEQ_GPU::rt
