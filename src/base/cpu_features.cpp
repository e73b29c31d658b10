#include "base/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <cstdlib>
#include <fstream>

#include "base/error.h"

namespace leq {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"portable", "portable-v3", "avx2",
                                                    "avx512vnni"};

#if defined(__x86_64__)
bool has_f16c() {  // not among the names that every compiler's __builtin_cpu_supports knows
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
bool has_v3() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
         __builtin_cpu_supports("bmi2");
}
bool has_avx512vnni() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
#else
bool has_v3() { return false; }
bool has_avx512vnni() { return false; }
#endif

}  // namespace

std::string_view isa_name(Isa isa) { return kNames[static_cast<std::size_t>(isa)]; }

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas = {Isa::portable};
  if (has_v3()) isas.insert(isas.end(), {Isa::portable_v3, Isa::avx2});
  if (has_avx512vnni()) isas.push_back(Isa::avx512vnni);
  return isas;
}

Isa chosen_isa() {
  const auto isas = supported_isas();
  const char* wanted = std::getenv("LEQ_ISA");
  if (wanted == nullptr || *wanted == '\0') return isas.back();
  for (const Isa isa : isas) {
    if (isa_name(isa) == wanted) return isa;
  }
  std::string offered;
  for (const Isa isa : isas) offered += (offered.empty() ? "" : ", ") + std::string(isa_name(isa));
  fail("LEQ_ISA=", wanted, ": this processor offers ", offered);
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
