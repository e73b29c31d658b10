// The features of x86-64 processors.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cpu_features.h"

namespace leq {
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

// What the processor answers to cpuid; all 0 if it does not know the leaf. Not
// __builtin_cpu_supports, which knows other features in each compiler, and none in zig's.
Registers cpuid(unsigned leaf, unsigned part = 0) {
  Registers found;
  return __get_cpuid_count(leaf, part, &found.a, &found.b, &found.c, &found.d) != 0 ? found
                                                                                    : Registers{};
}

constexpr bool has_all(unsigned bits, unsigned wanted) { return (bits & wanted) == wanted; }

// Returns whether the operating system saves these registers for each thread (bits of XCR0).
bool are_saved(unsigned wanted) {
  if (!has_all(cpuid(1).c, bit_OSXSAVE)) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return has_all(low, wanted);
}

bool has_v3() {
  constexpr unsigned kSseAndAvx = 0x6;
  return are_saved(kSseAndAvx) && has_all(cpuid(1).c, bit_FMA | bit_F16C) &&
         has_all(cpuid(7).b, bit_AVX2 | bit_BMI2);
}

bool has_avxvnni() {
  constexpr unsigned kAvxVnni = 1u << 4;
  return has_v3() && has_all(cpuid(7, 1).a, kAvxVnni);
}

bool has_v4() {
  constexpr unsigned kMasksAndZmm = 0xe0;
  return has_v3() && are_saved(kMasksAndZmm) &&
         has_all(cpuid(7).b,
                 bit_AVX512F | bit_AVX512BW | bit_AVX512VL | bit_AVX512DQ | bit_AVX512CD);
}

bool has_avx512vnni() { return has_v4() && has_all(cpuid(7).c, bit_AVX512VNNI); }

// Asks Linux for permission to use AMX tiles in all threads of this process (idempotent). The
// kernel refuses if it is too old or if a signal stack is too small for the tiles.
bool tiles_are_permitted() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // bit of the state in XCR0
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_avx512amx() {
  constexpr unsigned kTileAndInt8 = 1u << 24 | 1u << 25;
  return has_avx512vnni() && has_all(cpuid(7).d, kTileAndInt8) && tiles_are_permitted();
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
  if (cpuid(0).b != signature_AMD_ebx) return Fetch::twice;
  const unsigned version = cpuid(1).a;
  const unsigned family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
  if (family == kZen5) return Fetch::once;
  return family == kZen4 ? Fetch::never : Fetch::twice;
}

}  // namespace leq
