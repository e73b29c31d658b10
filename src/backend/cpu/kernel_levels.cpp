// Selects the kernels of an instruction set.
#include "backend/cpu/kernel_levels.h"

#include "base/error.h"

namespace leq::cpu {
namespace {

const KernelLevel& level(Isa isa) {
  for (const KernelLevel& one : kernel_levels()) {
    if (one.isa == isa) return one;
  }
  fail(ErrorKind::bad_setting, "instruction set ", isa_name(isa),
       ": not built for this processor family; try portable");
}

}  // namespace

const MatmulKernels& matmul_kernels(Isa isa) { return level(isa).matmul(); }
const RowKernels& row_kernels(Isa isa) { return level(isa).rows(); }
const AttentionKernels& attention_kernels(Isa isa) { return level(isa).attention(); }
const PackedKernels& packed_kernels(Isa isa) { return level(isa).packed(); }
const DeltaKernels& delta_kernels(Isa isa) { return level(isa).delta(); }

}  // namespace leq::cpu
