// 3-bit weights: a byte of the first plane holds the low two bits of four quads of columns, one of
// the second plane the third bits of eight.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_bits_avx512.h"

namespace leq::cpu {

void bits3_avx512vnni(const IntPanel& panel) noexcept { run_bits<Bits3>(panel); }

}  // namespace leq::cpu
