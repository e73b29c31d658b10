// 2-, 3- and 4-bit weights. A byte holds codes of four quads of columns (2 bits); the low bits of
// four quads, with third bits of eight quads in a second plane (3 bits); or two quads (4 bits).
#include "backend/cpu/matmul/matmul_kernel_tables.h"
#include "backend/cpu/matmul/x86/matmul_bits_avx512.h"

namespace leq::cpu {

void bits2_avx512vnni(const IntPanel& panel) noexcept { run_bits<Bits2>(panel); }
void bits3_avx512vnni(const IntPanel& panel) noexcept { run_bits<Bits3>(panel); }
void bits4_avx512vnni(const IntPanel& panel) noexcept { run_bits<Bits4>(panel); }

}  // namespace leq::cpu
