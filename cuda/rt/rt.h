// The device interface for host code: memory, and copies in order on a stream. It has two
// implementations: rt_cuda.cu on the CUDA runtime (LEQ_GPU = cuda), rt_sim.cpp on the emulator
// (LEQ_GPU = sim). Failures throw Error with the runtime's message. Launches are in run.h.
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
  int major = 0, minor = 0;  // its compute capability
  int multiprocessors = 0;
  std::size_t shared_limit_bytes = 0;  // limit of a block's shared memory
  std::size_t memory_bytes = 0;
  double clock_hz = 0;  // frequency of clock64 in kernels
  std::string uuid;     // "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", as in nvidia-smi
};
// Returns an empty list if there are no devices; never throws.
std::vector<DeviceInfo> devices();
// Returns the reason why devices() is empty, for users.
std::string why_no_device();

// Whether `word` is in the comma-separated list of the environment variable LEQ_GPU_DEBUG:
//   no-early   no kernel starts before its predecessor has ended
//   sync       the host waits for every launch, for steps that are not recorded
//   no-wgmma   matmuls on compute capability 9.0 use mma
//   no-join    what follows a matmul of one token is a launch of its own
// These options change no result. On hardware they help to find a wrong or slow mechanism.
inline bool has_debug_option(std::string_view word) {
  static const char* const words = std::getenv("LEQ_GPU_DEBUG");
  return words != nullptr && std::string_view(words).find(word) != std::string_view::npos;
}

struct MemoryInfo {
  std::size_t free_bytes = 0, total_bytes = 0;
};
MemoryInfo memory_of(int device);
// Returns whether kernels on `device` can write the memory of `peer`; enables this access.
bool reaches(int device, int peer);

// Frees what the functions below make.
struct Closer {
  void operator()(struct Stream* stream) const noexcept;
  void operator()(struct Event* event) const noexcept;
  void operator()(struct Region* region) const noexcept;
  void operator()(struct Graph* graph) const noexcept;
};

// An ordered queue of work, which runs asynchronously until synchronize.
using StreamOwner = std::unique_ptr<Stream, Closer>;
StreamOwner make_stream(int device);
const DeviceInfo& device_of(const Stream& stream);
void synchronize(Stream& stream);
// Returns whether all work of the stream has ended. The emulator runs the work first.
bool is_idle(Stream& stream);
// Makes the stream's device current for this thread, mainly for calls of libraries.
void use(Stream& stream);
// The cudaStream_t for CUDA's libraries, and whether such libraries exist (not on the emulator).
void* library_stream(Stream& stream);
bool has_libraries();

// A marker in a stream's order with the time at which the stream reached it. Waiting for an event
// that was never recorded returns at once; recording an event again replaces its marker.
using EventOwner = std::unique_ptr<Event, Closer>;
EventOwner make_event(int device);
void record(Event& event, Stream& stream);
void wait(Stream& stream, Event& event);  // later work of the stream waits, not the host
void synchronize(Event& event);           // the host waits
// Returns the time between two events that the stream has reached; it must be synchronized.
double seconds_between(const Event& from, const Event& to);

// Begins a named range of host work for profilers (NVTX); ranges nest.
void begin_range(const char* name);
void end_range();

// Allocates memory that is not zeroed; returns null if the device has too little. Releasing memory
// waits for all work on the device.
void* allocate(int device, std::size_t bytes);
void release(int device, void* data) noexcept;

// Memory that is allocated at once and used in blocks at offsets. The emulator counts the whole
// region, but allocates each block separately, so that a store past a block's end is detected.
using RegionOwner = std::unique_ptr<Region, Closer>;
RegionOwner take_region(int device, std::size_t bytes);  // null if there is too little memory
void* begin_block(Region& region, std::size_t offset, std::size_t bytes);
void end_block(Region& region, void* data) noexcept;

// Host memory for asynchronous copies. Until the stream has been synchronized, it must stay
// allocated and, if a copy may read it, unchanged.
void* allocate_pinned(std::size_t bytes);
void release_pinned(void* data) noexcept;

void copy_to_device(void* device, const void* pinned, std::size_t bytes, Stream& stream);
void copy_to_host(void* pinned, const void* device, std::size_t bytes, Stream& stream);
void copy_on_device(void* to, const void* from, std::size_t bytes, Stream& stream);
void fill_zero(void* device, std::size_t bytes, Stream& stream);

// Launches and copies that were recorded from a stream and can be run again as one. Arguments and
// addresses are those of the recording; the memory at these addresses is read when they run.
using GraphOwner = std::unique_ptr<Graph, Closer>;
// Until end_capture, work on the stream is recorded and does not run. This thread must not wait for
// the stream or allocate or free memory: such a call would fail, and so would the recording.
void begin_capture(Stream& stream);
GraphOwner end_capture(Stream& stream);  // throws Error if an operation was not allowed
void drop_capture(Stream& stream) noexcept;
bool is_capturing(const Stream& stream);
void launch(const Graph& graph, Stream& stream);

}  // namespace leq::LEQ_GPU::rt
