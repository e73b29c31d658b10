// 2-bit weights: a byte holds the codes of four quads of columns.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_bits_avx512.h"

namespace leq::cpu {

void bits2_avx512vnni(const IntPanel& panel) noexcept { run_bits<Bits2>(panel); }

}  // namespace leq::cpu
