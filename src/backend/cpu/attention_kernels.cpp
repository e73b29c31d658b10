// Picks the attention kernels of an instruction set.
#include "backend/cpu/attention_kernels.h"

#include <array>

#include "backend/cpu/attention_kernel_tables.h"

namespace leq::cpu {

const AttentionKernels& attention_kernels(Isa isa) {
  constexpr std::array kTables = {attention_kernels_portable, attention_kernels_v3,
                                  attention_kernels_avx2, attention_kernels_avx512vnni};
  return kTables[static_cast<std::size_t>(isa)]();
}

}  // namespace leq::cpu
