// Picks the limit kernels of an instruction set.
#include "backend/cpu/limit_kernels.h"

#include <array>

namespace leq::cpu {

const LimitKernels& limit_kernels(Isa isa) {
  // x86-64-v3 has AVX2, whatever code runs on it.
  constexpr std::array kTables = {limit_kernels_portable, limit_kernels_avx2, limit_kernels_avx2,
                                  limit_kernels_avx512vnni};
  return kTables[static_cast<std::size_t>(isa)]();
}

}  // namespace leq::cpu
