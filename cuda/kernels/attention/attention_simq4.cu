// Attention on the tensor cores over simq4 pages.
#include "cuda/kernels/attention/attention_packed.cuh"

namespace leq::LEQ_GPU {

template void launch_packed_attention<4, 64>(const AttentionArguments&, const AttentionPlan&,
                                             rt::Stream&);

}  // namespace leq::LEQ_GPU
