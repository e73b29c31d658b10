// Which instruction sets this processor offers and which one leq uses. The build takes one of
// base/x86, base/arm and base/generic.
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

// The prefetching that was measured to be fastest: AMD's Zen 5 once, Zen 4 (whose family number Zen
// 3 shares) never, others and unknown ones twice.
Fetch best_fetch();

// "Intel(R) Xeon(R) Processor", for reports; empty where it cannot be read.
std::string cpu_model_name();

}  // namespace leq
