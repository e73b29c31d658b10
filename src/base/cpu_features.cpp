#include "base/cpu_features.h"

#include <array>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::array<std::string_view, 10> kNames = {
    "portable",   "portable-v3", "avx2", "avxvnni", "avx512",
    "avx512vnni", "avx512amx",   "neon", "dotprod", "i8mm"};

// The highest level except avx512: processors that have AVX-512 but no VNNI lower their clock
// during 512-bit multiplications, and no whole model has been measured to run faster with it.
Isa best_of(std::vector<Isa> isas) {
  std::erase(isas, Isa::avx512);
  return isas.back();
}

}  // namespace

std::string_view isa_name(Isa isa) { return kNames[static_cast<std::size_t>(isa)]; }

Isa chosen_isa() {
  const auto isas = supported_isas();
  const char* wanted = std::getenv("LEQ_ISA");
  if (wanted == nullptr || *wanted == '\0') return best_of(isas);
  for (const Isa isa : isas) {
    if (isa_name(isa) == wanted) return isa;
  }
  std::vector<std::string> offered;
  for (const Isa isa : isas) offered.emplace_back(isa_name(isa));
  fail(ErrorKind::bad_setting, "LEQ_ISA=", wanted, ": this processor offers ", join(offered));
}

std::string cpu_model_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const std::size_t colon = line.find(": ");
      return colon == std::string::npos ? "" : line.substr(colon + 2);
    }
  }
  return {};
}

}  // namespace leq
