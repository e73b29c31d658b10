// Which attention runs, and the join of spans that tensor cores left in scratch.
#include <algorithm>

#include "cuda/kernels/attention/attention_join.cuh"
#include "cuda/kernels/attention/attention_tile_scores.cuh"

namespace leq::LEQ_GPU {

namespace {

constexpr int kTensorDims = 256;  // the widest head

// As Joined (attention_tile_values.cuh) joins spans.
struct TensorJoin {
  static constexpr float kStart = kNothingSeen;
  float largest, keep, take;

  __device__ __forceinline__ TensorJoin(float before, float, float more) {
    const Join join(before, more);
    largest = join.largest;
    keep = join.keep;
    take = join.take(more);
  }
};

bool on_tensor_cores(const AttentionArguments& a) {
  return !a.exact && a.keys.type == a.values.type && a.keys.type != KvType::f32 &&
         a.heads.head_dim % 16 == 0 && a.heads.head_dim <= kTensorDims;
}

}  // namespace

void launch_attention(const AttentionArguments& a, rt::Stream& stream) {
  if (a.batch.tokens <= 0) return;
  if (!on_tensor_cores(a)) return launch_exact_attention(a, stream);
  AttentionPlan plan;
  plan.spans = spans_of(a.batch.end);
  plan.split = plan.spans > 1 && a.batch.tokens * a.heads.heads <= kTensorSplit;
  if (a.keys.type == KvType::int8) {
    launch_tensor_attention<KvType::int8, KvType::int8>(a, plan, stream);
  } else {
    launch_tensor_attention<KvType::f16, KvType::f16>(a, plan, stream);
  }
  if (plan.split) launch_attention_join<TensorJoin>(a, plan, stream);
}

}  // namespace leq::LEQ_GPU
