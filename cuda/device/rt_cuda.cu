// The runtime on CUDA: thin wrappers that throw every failure as an Error with CUDA's message.
#include <nvtx3/nvToolsExt.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "cuda/host/device_list.h"
#include "cuda/intrinsics/run.h"

namespace leq::LEQ_GPU::rt {

struct Stream {
  int device = 0;
  cudaStream_t handle = nullptr;
};
struct Event {
  int device = 0;
  cudaEvent_t handle = nullptr;
};
struct Region {
  int device = 0;
  std::byte* memory = nullptr;
};

namespace {

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  fail(result == cudaErrorMemoryAllocation ? ErrorKind::no_memory : ErrorKind::no_device,
       "CUDA: ", what, ": ", cudaGetErrorString(result));
}

// Selects the device for later calls on this thread. Every function calls this first, because a new
// thread uses device 0, whatever the device of its streams is.
void use_device(int device) { check(cudaSetDevice(device), "cannot use the device"); }
cudaStream_t used(const Stream& stream) {
  use_device(stream.device);
  return stream.handle;
}
cudaEvent_t used(const Event& event) {
  use_device(event.device);
  return event.handle;
}

// Returns the UUID in nvidia-smi's format.
std::string uuid_text(const cudaUUID_t& uuid) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::vector<DeviceInfo> find_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return {};
  std::vector<DeviceInfo> found;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) return {};
    int kilohertz = 0;
    if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, i) != cudaSuccess) return {};
    found.push_back({properties.name, properties.major, properties.minor,
                     properties.multiProcessorCount, properties.sharedMemPerBlockOptin,
                     properties.totalGlobalMem, 1e3 * kilohertz, uuid_text(properties.uuid)});
  }
  return found;
}

const std::vector<DeviceInfo>& known_devices() {
  static const std::vector<DeviceInfo> found = find_devices();
  return found;
}

}  // namespace

std::vector<DeviceInfo> devices() { return known_devices(); }

std::string why_no_device() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  DriverState state;
  cudaDriverGetVersion(&state.driver_version);
  cudaRuntimeGetVersion(&state.runtime_version);
  state.reason = result == cudaSuccess ? "the driver lists none" : cudaGetErrorString(result);
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) state.visible = visible;
  return explain_no_device(state);
}

StreamOwner make_stream(int device) {
  use_device(device);
  StreamOwner stream(new Stream{device, nullptr});
  check(cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking), "cannot make a stream");
  return stream;
}

void Closer::operator()(Stream* stream) const noexcept {
  cudaSetDevice(stream->device);
  if (stream->handle != nullptr) cudaStreamDestroy(stream->handle);
  delete stream;
}

const DeviceInfo& device_of(const Stream& stream) {
  return known_devices()[static_cast<std::size_t>(stream.device)];
}

void synchronize(Stream& stream) {
  check(cudaStreamSynchronize(used(stream)), "work on the device failed");
}

bool is_idle(Stream& stream) {
  const cudaError_t result = cudaStreamQuery(used(stream));
  if (result == cudaErrorNotReady) return false;
  check(result, "work on the device failed");
  return true;
}
void use(Stream& stream) { use_device(stream.device); }
void* library_stream(Stream& stream) { return used(stream); }
bool has_libraries() { return true; }

EventOwner make_event(int device) {
  use_device(device);
  EventOwner event(new Event{device, nullptr});
  check(cudaEventCreate(&event->handle), "cannot make an event");
  return event;
}

void Closer::operator()(Event* event) const noexcept {
  cudaSetDevice(event->device);
  if (event->handle != nullptr) cudaEventDestroy(event->handle);
  delete event;
}

void record(Event& event, Stream& stream) {
  check(cudaEventRecord(event.handle, used(stream)), "event");
}
double seconds_between(const Event& from, const Event& to) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, from.handle, used(to)), "event");
  return 1e-3 * double{milliseconds};
}

void begin_range(const char* name) { nvtxRangePushA(name); }
void end_range() { nvtxRangePop(); }

void* allocate(int device, std::size_t bytes) {
  use_device(device);
  void* data = nullptr;
  if (cudaMalloc(&data, bytes == 0 ? 1 : bytes) == cudaSuccess) return data;
  cudaGetLastError();  // clears it: the caller reports it, not the next launch
  return nullptr;
}

void release(int device, void* data) noexcept {
  // This waits, because cudaFree may not synchronize and queued kernels may still use the scratch.
  cudaSetDevice(device);
  cudaDeviceSynchronize();
  cudaFree(data);
}

MemoryInfo memory_of(int device) {
  use_device(device);
  MemoryInfo memory;
  check(cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes), "the device's free memory");
  return memory;
}

bool reaches(int device, int peer) {
  if (device == peer) return true;
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, device, peer), "ask whether GPUs reach each other");
  if (can == 0) return false;
  use_device(device);
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // clears the result, which is not a failure
    return true;
  }
  check(enabled, "let GPUs reach each other");
  return true;
}

void wait(Stream& stream, Event& event) {
  check(cudaStreamWaitEvent(used(stream), event.handle, 0), "event");
}
void synchronize(Event& event) {
  check(cudaEventSynchronize(used(event)), "work on the device failed");
}

RegionOwner take_region(int device, std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(allocate(device, bytes));
  return RegionOwner(memory == nullptr ? nullptr : new Region{device, memory});
}

void Closer::operator()(Region* region) const noexcept {
  release(region->device, region->memory);
  delete region;
}

void* begin_block(Region& region, std::size_t offset, std::size_t) {
  return region.memory + offset;
}
void end_block(Region&, void*) noexcept {}

void* allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes), "no pinned host memory");
  return data;
}

void release_pinned(void* data) noexcept { cudaFreeHost(data); }

void copy_to_device(void* device, const void* pinned, std::size_t bytes, Stream& stream) {
  check(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, used(stream)), "copy");
}
void copy_to_host(void* pinned, const void* device, std::size_t bytes, Stream& stream) {
  check(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, used(stream)), "copy");
}
void copy_on_device(void* to, const void* from, std::size_t bytes, Stream& stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, used(stream)), "copy");
}
void fill_zero(void* device, std::size_t bytes, Stream& stream) {
  check(cudaMemsetAsync(device, 0, bytes, used(stream)), "fill");
}

struct Graph {
  cudaGraphExec_t handle = nullptr;
};

void Closer::operator()(Graph* graph) const noexcept {
  if (graph->handle != nullptr) cudaGraphExecDestroy(graph->handle);
  delete graph;
}

void begin_capture(Stream& stream) {
  check(cudaStreamBeginCapture(used(stream), cudaStreamCaptureModeThreadLocal), "begin recording");
}

GraphOwner end_capture(Stream& stream) {
  cudaGraph_t recorded = nullptr;
  check(cudaStreamEndCapture(used(stream), &recorded), "end recording");
  GraphOwner graph(new Graph);
  const cudaError_t made = cudaGraphInstantiate(&graph->handle, recorded, 0);
  cudaGraphDestroy(recorded);
  check(made, "make a graph of what was recorded");
  return graph;
}

void drop_capture(Stream& stream) noexcept {
  cudaGraph_t recorded = nullptr;
  cudaSetDevice(stream.device);
  cudaStreamEndCapture(stream.handle, &recorded);
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  cudaGetLastError();
}

bool is_capturing(const Stream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(used(stream), &status), "ask whether a stream records");
  return status != cudaStreamCaptureStatusNone;
}

void launch(const Graph& graph, Stream& stream) {
  check(cudaGraphLaunch(graph.handle, used(stream)), "launch a graph");
}

namespace {

// Prepares a kernel for its first launch on a device; returns whether it waits for its predecessor
// in code, so that it may start early. PTX for older chips does not contain the wait. The limit of
// shared memory is only raised here, to the maximum, so that recorded launches are never affected
// by a later change.
bool prepare(const void* kernel, const Launch& launch, const Stream& stream) {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), "ask for a kernel's code");
  const std::size_t dynamic = device_of(stream).shared_limit_bytes - attributes.sharedSizeBytes;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(dynamic)),
        launch.kernel);
  return attributes.ptxVersion >= 90 && !has_debug_option("no-early");
}

// As prepare, once for each kernel and device, because GPUs of different kinds run different code.
bool waits(const void* kernel, const Launch& launch, const Stream& stream) {
  static std::mutex lock;
  static std::map<std::pair<const void*, int>, bool> known;
  const std::lock_guard hold(lock);
  const std::pair key(kernel, stream.device);
  auto found = known.find(key);
  if (found == known.end()) found = known.emplace(key, prepare(kernel, launch, stream)).first;
  return found->second;
}

}  // namespace

cudaLaunchConfig_t launch_config(const Launch& launch, const void* kernel, Stream& stream,
                                 LaunchAttributes& attributes) {
  cudaLaunchConfig_t config = {};
  config.stream = used(stream);
  const bool may_start_early = waits(kernel, launch, stream);
  config.gridDim = launch.blocks;
  config.blockDim = launch.threads;
  config.dynamicSmemBytes = launch.shared_bytes;
  config.attrs = attributes.data();
  if (launch.start == Start::early && may_start_early) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (launch.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = launch.cluster;
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
  }
  return config;
}

void check_launch(cudaError_t result, const Launch& launch) {
  check(result, launch.kernel);
  if (has_debug_option("sync"))
    check(cudaDeviceSynchronize(), launch.kernel);  // not possible while recording
}

cudaStream_t handle(Stream& stream) { return used(stream); }

}  // namespace leq::LEQ_GPU::rt
