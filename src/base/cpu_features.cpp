#include "base/cpu_features.h"

#include <array>
#include <cstdlib>
#include <fstream>

#include "base/error.h"

namespace leq {
namespace {

constexpr std::array<std::string_view, 7> kNames = {
    "portable", "portable-v3", "avx2", "avx512vnni", "avx512amx", "neon", "dotprod"};

}  // namespace

std::string_view isa_name(Isa isa) { return kNames[static_cast<std::size_t>(isa)]; }

Isa chosen_isa() {
  const auto isas = supported_isas();
  const char* wanted = std::getenv("LEQ_ISA");
  if (wanted == nullptr || *wanted == '\0') return isas.back();
  for (const Isa isa : isas) {
    if (isa_name(isa) == wanted) return isa;
  }
  std::string offered;
  for (const Isa isa : isas) offered += (offered.empty() ? "" : ", ") + std::string(isa_name(isa));
  fail(ErrorKind::bad_setting, "LEQ_ISA=", wanted, ": this processor offers ", offered);
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
