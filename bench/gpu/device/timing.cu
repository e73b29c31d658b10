// Measures the times of graphs with events.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "bench/gpu/timing.h"
#include "cuda/intrinsics/run.h"

namespace leq::LEQ_GPU::bench {
namespace {

void check(cudaError_t result, const char* what) {
  if (result != cudaSuccess) fail("CUDA: ", what, ": ", cudaGetErrorString(result));
}

// A graph of one pass over all items, which can be replayed.
class Graph {
 public:
  Graph(cudaStream_t stream, int items, const std::function<void(int item)>& launch) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capture");
    for (int i = 0; i < items; ++i) launch(i);
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&ready_, graph, 0), "graph");
    cudaGraphDestroy(graph);
    check(cudaEventCreate(&start_), "event");
    check(cudaEventCreate(&end_), "event");
  }
  ~Graph() {
    cudaGraphExecDestroy(ready_);
    cudaEventDestroy(start_);
    cudaEventDestroy(end_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  float milliseconds(cudaStream_t stream, int replays) {
    check(cudaEventRecord(start_, stream), "event");
    for (int i = 0; i < replays; ++i) check(cudaGraphLaunch(ready_, stream), "graph");
    check(cudaEventRecord(end_, stream), "event");
    check(cudaEventSynchronize(end_), "kernel");
    float time = 0;
    check(cudaEventElapsedTime(&time, start_, end_), "event");
    return time;
  }

 private:
  cudaGraphExec_t ready_ = nullptr;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
};

}  // namespace

double microseconds(rt::Stream& stream, int items, const std::function<void(int item)>& launch) {
  constexpr int kSamples = 11;
  constexpr float kSampleMs = 4;              // long compared with the gap between replays
  for (int i = 0; i < items; ++i) launch(i);  // loads modules and sets attributes
  rt::synchronize(stream);
  Graph graph(rt::handle(stream), items, launch);
  const float once = std::max(graph.milliseconds(rt::handle(stream), 1), 1e-3f);
  const int replays = std::clamp(static_cast<int>(kSampleMs / once), 1, 1000);
  graph.milliseconds(rt::handle(stream), replays);
  std::vector<float> times;
  for (int i = 0; i < kSamples; ++i)
    times.push_back(graph.milliseconds(rt::handle(stream), replays));
  std::nth_element(times.begin(), times.begin() + kSamples / 2, times.end());
  return 1e3 * times[kSamples / 2] / replays / items;
}

}  // namespace leq::LEQ_GPU::bench
