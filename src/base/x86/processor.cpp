// The features of x86-64 processors.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpu_features.h"

namespace leq {
namespace {

bool has_f16c() {  // not every compiler's __builtin_cpu_supports has it
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool has_v3() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
         __builtin_cpu_supports("bmi2");
}

bool has_avxvnni() {  // not in every __builtin_cpu_supports either
  constexpr unsigned kAvxVnni = 1u << 4;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return has_v3() && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kAvxVnni) != 0;
}

bool has_v4() {
  return has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512cd");
}

bool has_avx512vnni() { return has_v4() && __builtin_cpu_supports("avx512vnni"); }

// Asks Linux for permission to use AMX tiles in all threads of this process (idempotent). The
// kernel refuses if it is too old or if a signal stack is too small for the tiles.
bool tiles_are_permitted() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // bit of the state in XCR0
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_avx512amx() {
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;  // bits in edx of leaf 7
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_avx512vnni() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (d & kTile) != 0 && (d & kInt8) != 0 && tiles_are_permitted();
}

}  // namespace

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas = {Isa::portable};
  if (has_v3()) isas.insert(isas.end(), {Isa::portable_v3, Isa::avx2});
  if (has_avxvnni()) isas.push_back(Isa::avxvnni);
  if (has_v4()) isas.push_back(Isa::avx512);
  if (has_avx512vnni()) isas.push_back(Isa::avx512vnni);
  if (has_avx512amx()) isas.push_back(Isa::avx512amx);
  return isas;
}

void pause_briefly() noexcept { __builtin_ia32_pause(); }

Fetch best_fetch() {
  constexpr unsigned kZen4 = 0x19, kZen5 = 0x1a;  // base family (15) plus extended family
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0 || b != signature_AMD_ebx) return Fetch::twice;
  __get_cpuid(1, &a, &b, &c, &d);
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
  if (family == kZen5) return Fetch::once;
  return family == kZen4 ? Fetch::never : Fetch::twice;
}

}  // namespace leq
