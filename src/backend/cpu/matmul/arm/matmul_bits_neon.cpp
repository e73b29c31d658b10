// 4-, 3- and 2-bit group-scaled weights times int8 activations with NEON.
#include "backend/cpu/arm/step_neon.h"
#include "backend/cpu/matmul/arm/matmul_panel.h"
#include "backend/cpu/matmul/matmul_kernel_tables.h"

namespace leq::cpu {

void bits4_neon(const IntPanel& panel) noexcept { run_groups<Codes<4, false>, Step>(panel); }
void bits3_neon(const IntPanel& panel) noexcept { run_groups<Codes<3, false>, Step>(panel); }
void bits2_neon(const IntPanel& panel) noexcept { run_groups<Codes<2, false>, Step>(panel); }

}  // namespace leq::cpu
