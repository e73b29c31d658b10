// What x86-64 processors offer.
#include <cpuid.h>

#include "base/cpu_features.h"

namespace leq {
namespace {

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

}  // namespace

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas = {Isa::portable};
  if (has_v3()) isas.insert(isas.end(), {Isa::portable_v3, Isa::avx2});
  if (has_avx512vnni()) isas.push_back(Isa::avx512vnni);
  return isas;
}

void pause_briefly() noexcept { __builtin_ia32_pause(); }

}  // namespace leq
