// 2-, 3- and 4-bit weights: a byte holds the codes of four quads of columns; of four, and one of
// the second plane the third bits of eight; of two.
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_bits_avx512.h"

namespace leq::cpu {

void bits2_avx512vnni(const IntPanel& panel) noexcept { run_bits<Bits2>(panel); }
void bits3_avx512vnni(const IntPanel& panel) noexcept { run_bits<Bits3>(panel); }
void bits4_avx512vnni(const IntPanel& panel) noexcept { run_bits<Bits4>(panel); }

}  // namespace leq::cpu
