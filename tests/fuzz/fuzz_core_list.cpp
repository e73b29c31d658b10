// Any bytes as a list of cores as in /sys: no crash, and the cores are ascending and within bounds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/topology.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto cores = leq::parse_core_list(text);
  if (!cores) return 0;
  for (std::size_t i = 0; i < cores->size(); ++i) {
    const int core = (*cores)[i];
    if (core < 0 || core >= 8192 || (i > 0 && core <= (*cores)[i - 1])) std::abort();
  }
  return 0;
}
