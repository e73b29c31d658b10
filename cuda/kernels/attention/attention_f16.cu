// Attention on the tensor cores over f16 pages.
#include "cuda/kernels/attention/attention_tensor.cuh"

namespace leq::LEQ_GPU {

template void launch_tensor_attention<KvType::f16>(const AttentionArguments&, const AttentionPlan&,
                                                   rt::Stream&);

}  // namespace leq::LEQ_GPU
