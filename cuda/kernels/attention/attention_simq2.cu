// Attention on the tensor cores over simq2 pages.
#include "cuda/kernels/attention/attention_packed.cuh"

namespace leq::LEQ_GPU {

template void launch_packed_attention<2, 32>(const AttentionArguments&, const AttentionPlan&,
                                             rt::Stream&);

}  // namespace leq::LEQ_GPU
