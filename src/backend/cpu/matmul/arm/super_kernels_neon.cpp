// Codes under superblock scales with NEON.
#include "backend/cpu/arm/step_neon.h"
#include "backend/cpu/matmul/arm/super_panel.h"

namespace leq::cpu {

void super_neon(const SuperPanel& panel) noexcept { super_of_bits<Step>(panel); }

}  // namespace leq::cpu
