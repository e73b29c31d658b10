// The instruction sets that this processor supports and the one that leq uses. The build compiles
// one of base/x86, base/arm and base/generic.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fetch.h"

namespace leq {

// The levels of all families. Within a family they ascend: each level is at least as fast as those
// below it and may use their instructions, except that avx512 does not include avxvnni.
// x86-64: portable, portable_v3 (portable kernels built for x86-64-v3, for tests only: every such
// processor has avx2, which is preferred), avx2, avxvnni (256 bits), avx512 (without VNNI; never
// chosen automatically), avx512vnni, avx512amx
// aarch64: portable, neon, dotprod, i8mm
// others: portable
enum class Isa {
  portable,
  portable_v3,
  avx2,
  avxvnni,
  avx512,
  avx512vnni,
  avx512amx,
  neon,
  dotprod,
  i8mm
};

std::string_view isa_name(Isa isa);

// The levels that both the processor and the operating system support, ascending; never empty.
std::vector<Isa> supported_isas();

// The best supported level except avx512, limited by the environment variable LEQ_ISA (an
// isa_name). Throws Error if LEQ_ISA names an unknown level or one that this processor lacks.
Isa chosen_isa();

// A spin-wait hint to the processor; it pauses the thread for a few dozen cycles.
void pause_briefly() noexcept;

// The prefetching that was measured to be fastest: `once` on AMD's Zen 5, `never` on Zen 4 (and on
// Zen 3, which has the same family number), `twice` on all other processors.
Fetch best_fetch();

// For reports, for example "Intel(R) Xeon(R) Processor"; empty if it cannot be read.
std::string cpu_model_name();

}  // namespace leq
