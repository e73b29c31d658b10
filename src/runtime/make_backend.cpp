#include "runtime/make_backend.h"

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/text.h"
#include "cuda/layout/gpu_layout.h"
#include "runtime/devices/devices.h"

namespace leq {
namespace {

[[noreturn]] void fail_unknown(std::string_view device) {
  fail(Setting{"device"}, " ", printable(device),
       ": expected cpu, cuda, cuda:N, cuda:GPU-UUID, sim or sim:SIZE; ", Setting{"list_devices"},
       " shows what there is");
}

// The text after "cuda:", which is a number or the start of a UUID.
std::string_view cuda_choice(std::string_view device) {
  if (device == "cuda") return "0";
  const std::string_view which = device.substr(std::string_view("cuda:").size());
  const bool number = !which.empty() && which.size() < 9 &&
                      which.find_first_not_of("0123456789") == std::string_view::npos;
  if (!number && !which.starts_with("GPU-") && !which.starts_with("MIG-")) fail_unknown(device);
  return which;
}

std::uint64_t sim_memory(std::string_view device) {
  if (device == "sim") return 0;
  const auto bytes = parse_bytes(device.substr(std::string_view("sim:").size()));
  if (!bytes || *bytes == 0) fail_unknown(device);
  return *bytes;
}

enum class Family : std::uint8_t { cpu, sim, cuda };

Family family_of(std::string_view device) {
  if (device == "cpu") return Family::cpu;
  if (device == "sim" || device.starts_with("sim:")) return Family::sim;
  if (device == "cuda" || device.starts_with("cuda:")) return Family::cuda;
  fail_unknown(device);
}

}  // namespace

std::unique_ptr<Backend> make_backend(const DeviceOptions& options) {
  switch (family_of(options.device)) {
    case Family::cpu:
      return make_cpu_backend({options.threads, chosen_isa(), options.numa});
    case Family::sim:
      return devices::make_sim(options.threads, sim_memory(options.device), options.gpu);
    case Family::cuda:
      return devices::make_cuda(cuda_choice(options.device), options.gpu);
  }
  fail_unknown(options.device);
}

std::unique_ptr<Layout> make_layout(const DeviceOptions& options) {
  const Family family = family_of(options.device);
  if (family == Family::cpu) return std::make_unique<CpuLayout>(options.threads);
  if (family == Family::cuda) cuda_choice(options.device);  // checks at least the name
  if (family == Family::sim) sim_memory(options.device);
  return std::make_unique<gpu::GpuLayout>(options.gpu.arithmetic);
}

std::vector<std::string> list_devices() {
  std::vector<std::string> lines = {"cpu  " + std::string(isa_name(chosen_isa()))};
  for (const auto& more : {devices::cuda_lines(), devices::sim_lines()}) {
    lines.insert(lines.end(), more.begin(), more.end());
  }
  return lines;
}

}  // namespace leq
