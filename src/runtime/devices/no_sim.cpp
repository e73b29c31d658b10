#include "base/error.h"
#include "runtime/devices/devices.h"

namespace leq::devices {

std::vector<std::string> sim_lines() { return {}; }

std::unique_ptr<Backend> make_sim(int, std::uint64_t, const GpuOptions&) {
  fail(ErrorKind::no_device, Setting{"device"},
       " sim: this build has no emulated GPU; configure with -DLEQ_CUDA_SIM=ON on x86-64");
}

}  // namespace leq::devices
