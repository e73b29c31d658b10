// The features of aarch64 processors, as the Linux kernel reports them.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "base/cpu_features.h"

namespace leq {

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas = {Isa::portable, Isa::neon};  // every aarch64 processor has NEON
  if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) isas.push_back(Isa::dotprod);
  if (isas.back() == Isa::dotprod && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0) {
    isas.push_back(Isa::i8mm);
  }
  return isas;
}

// isb stalls until the pipeline is empty, whereas `yield` does nothing on most cores.
void pause_briefly() noexcept { asm volatile("isb" ::: "memory"); }

Fetch best_fetch() { return Fetch::twice; }

}  // namespace leq
