// Codes under superblock scales, compiled for x86-64-v3.
#include "backend/cpu/matmul/super_kernels.h"

namespace leq::cpu {
namespace {
#include "backend/cpu/matmul/super_kernels.inc"
}  // namespace

void super_v3(const SuperPanel& panel) noexcept { super_blocks(panel); }

}  // namespace leq::cpu
