#include "cuda/cuda_backend.h"
#include "cuda/devices.h"
#include "cuda/sim/emulator.h"

namespace leq::sim {

std::unique_ptr<Backend> make_backend(int threads) {
  simt::set_workers(threads);
  return make_device_backend(0, "sim");
}

}  // namespace leq::sim
