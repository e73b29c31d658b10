// The portable kernels, compiled for x86-64-v3.
#include "backend/cpu/kernels/portable.inc"

namespace leq::cpu {

const KernelLevel& level_v3() { return plain::level<Isa::portable_v3>(); }

}  // namespace leq::cpu
