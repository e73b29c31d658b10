// Which instruction sets this processor offers and which one leq uses. What differs between
// families of processors lies in base/x86, base/arm and base/generic, of which the build takes one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fetch.h"

namespace leq {

// The levels of all families. Within one family they ascend: each is as fast as those below it, and
// may use what they use, but that avx512 does without avxvnni.
//   x86-64: portable, portable_v3 (the portable kernels built for x86-64-v3, for tests: avx2 is
//     there wherever it is, and chosen instead), avx2, avxvnni (256 bits), avx512 (without VNNI:
//     never chosen by itself), avx512vnni, avx512amx
//   aarch64: portable, neon, dotprod, i8mm
//   others: portable
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

// What the processor and the operating system support, ascending; never empty.
std::vector<Isa> supported_isas();

// The best supported level (but avx512), narrowed by the environment variable LEQ_ISA (a name of
// isa_name). Throws Error where LEQ_ISA names an unknown level or one that this processor lacks.
Isa chosen_isa();

// Tells the processor that the calling thread waits in a loop, for a few dozen cycles.
void pause_briefly() noexcept;

// What was measured: AMD's Zen 5 once, Zen 4 never (its family has Zen 3 too), others twice. (Of
// those not measured: twice.)
Fetch best_fetch();

// "Intel(R) Xeon(R) Processor", for reports; empty where it cannot be read.
std::string cpu_model_name();

}  // namespace leq
