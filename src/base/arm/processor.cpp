// The features of aarch64 processors, as the operating system reports them.
#include "base/cpu_features.h"
#include "base/system.h"

namespace leq {

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas = {Isa::portable, Isa::neon};  // every aarch64 processor has NEON
  if (!system::has_arm_dotprod()) return isas;
  isas.push_back(Isa::dotprod);
  if (system::has_arm_i8mm()) isas.push_back(Isa::i8mm);
  return isas;
}

// isb stalls until the pipeline is empty, whereas `yield` does nothing on most cores.
void pause_briefly() noexcept { asm volatile("isb" ::: "memory"); }

Fetch best_fetch() { return Fetch::twice; }

}  // namespace leq
