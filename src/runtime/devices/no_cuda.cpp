#include "base/error.h"
#include "runtime/devices/devices.h"

namespace leq::devices {

std::vector<std::string> cuda_lines() { return {"cuda  not in this build (LEQ_CUDA)"}; }

std::unique_ptr<Backend> make_cuda(std::string_view which, const GpuOptions&) {
  fail(ErrorKind::no_device, Setting{"device"}, " cuda:", which,
       ": this build has no CUDA backend; use ", Setting{"device"}, " cpu, or configure with",
       " -DLEQ_CUDA=ON where the CUDA toolkit is installed");
}

}  // namespace leq::devices
