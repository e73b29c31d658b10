#include "platform/make_backend.h"

#include <charconv>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/text.h"
#include "platform/gpu.h"

namespace leq {
namespace {

[[noreturn]] void fail_unknown(std::string_view device) {
  fail("-dev ", printable(device), ": expected cpu, cuda, cuda:N or sim; --list-devices shows what",
       " there is");
}

int cuda_number(std::string_view device) {
  if (device == "cuda") return 0;
  const std::string_view digits = device.substr(std::string_view("cuda:").size());
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size() || number < 0) {
    fail_unknown(device);
  }
  return number;
}

}  // namespace

std::unique_ptr<Backend> make_backend(const DeviceOptions& options) {
  const std::string_view device = options.device;
  if (device == "cpu") return make_cpu_backend({options.threads, chosen_isa()});
  if (device == "sim") return platform::make_sim(options.threads);
  if (device == "cuda" || device.starts_with("cuda:")) {
    return platform::make_cuda(cuda_number(device));
  }
  fail_unknown(device);
}

std::vector<std::string> list_devices() {
  std::vector<std::string> lines = {"cpu  " + std::string(isa_name(chosen_isa()))};
  for (const auto& more : {platform::cuda_lines(), platform::sim_lines()}) {
    lines.insert(lines.end(), more.begin(), more.end());
  }
  return lines;
}

}  // namespace leq
