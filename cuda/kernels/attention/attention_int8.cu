// Attention on the tensor cores over int8 pages.
#include "cuda/kernels/attention/attention_tensor.cuh"

namespace leq::LEQ_GPU {

template void launch_tensor_attention<KvType::int8>(const AttentionArguments&, const AttentionPlan&,
                                                    rt::Stream&);

}  // namespace leq::LEQ_GPU
