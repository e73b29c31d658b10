// The portable kernels, compiled for the baseline of the processor family.
#include "backend/cpu/kernels/portable.inc"

namespace leq::cpu {

const KernelLevel& level_portable() { return plain::level<Isa::portable>(); }

}  // namespace leq::cpu
