// Codes under superblock scales, compiled for the baseline of the processor family.
#include "backend/cpu/matmul/super_kernels.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/matmul/super_kernels.inc"
}  // namespace

void super_portable(const SuperPanel& panel) noexcept { super_blocks(panel); }

}  // namespace leq::cpu
