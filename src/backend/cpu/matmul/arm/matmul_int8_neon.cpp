// int8 and uint8 weights times int8 activations with NEON.
#include "backend/cpu/arm/step_neon.h"
#include "backend/cpu/matmul/arm/matmul_panel.h"
#include "backend/cpu/matmul/matmul_kernel_tables.h"

namespace leq::cpu {
namespace {

using Int8 = Codes<8, true>;
using Uint8 = Codes<8, false>;

}  // namespace

void int8_rows_neon(const IntPanel& panel) noexcept { run_rows<Int8, Step>(panel); }
void int8_groups_neon(const IntPanel& panel) noexcept { run_groups<Int8, Step>(panel); }
void uint8_rows_neon(const IntPanel& panel) noexcept { run_rows<Uint8, Step>(panel); }
void uint8_groups_neon(const IntPanel& panel) noexcept { run_groups<Uint8, Step>(panel); }

}  // namespace leq::cpu
