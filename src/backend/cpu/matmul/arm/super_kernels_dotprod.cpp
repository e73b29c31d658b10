// Codes under superblock scales with sdot.
#include "backend/cpu/arm/step_dotprod.h"
#include "backend/cpu/matmul/arm/super_panel.h"

namespace leq::cpu {

void super_dotprod(const SuperPanel& panel) noexcept { super_of_bits<Step>(panel); }

}  // namespace leq::cpu
