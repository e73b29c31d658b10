#include <string>

#include "cuda/emulated/emulated_device.h"
#include "cuda/host/cuda_backend.h"
#include "cuda/host/devices.h"
#include "cuda/sim/emulator.h"

namespace leq::sim {

std::unique_ptr<Backend> make_backend(int threads, std::uint64_t memory,
                                      const GpuOptions& options) {
  simt::set_workers(options.rank, threads);
  if (memory > 0) rt::set_emulated_memory(memory);
  const std::string name = options.rank == 0 ? "sim" : "sim " + std::to_string(options.rank);
  return make_device_backend(options.rank, name, options);
}

}  // namespace leq::sim
