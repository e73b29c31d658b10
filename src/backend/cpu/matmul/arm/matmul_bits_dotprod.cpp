// 4-, 3- and 2-bit group-scaled weights times int8 activations with sdot.
#include "backend/cpu/arm/step_dotprod.h"
#include "backend/cpu/matmul/arm/matmul_panel.h"
#include "backend/cpu/matmul/matmul_kernel_tables.h"

namespace leq::cpu {

void bits4_dotprod(const IntPanel& panel) noexcept { run_groups<Codes<4, false>, Step>(panel); }
void bits3_dotprod(const IntPanel& panel) noexcept { run_groups<Codes<3, false>, Step>(panel); }
void bits2_dotprod(const IntPanel& panel) noexcept { run_groups<Codes<2, false>, Step>(panel); }

}  // namespace leq::cpu
