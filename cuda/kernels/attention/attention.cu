// Selection of the attention kernel.
#include <algorithm>

#include "base/error.h"
#include "cuda/kernels/attention/attention_launch.h"

namespace leq::LEQ_GPU {

namespace {

constexpr int kTensorDims = 256;  // the widest head that the tensor-core kernels take

bool on_tensor_cores(const AttentionArguments& a) {
  const int most = a.keys.codes.packed() ? kPackedDims : kTensorDims;
  return !a.exact && a.keys.type == a.values.type && a.keys.type != KvType::f32 &&
         a.heads.head_dim % 16 == 0 && a.heads.head_dim <= most;
}

void launch_type(const AttentionArguments& a, const AttentionPlan& plan, rt::Stream& stream) {
  switch (a.keys.type) {
    case KvType::int8:
      return launch_tensor_attention<KvType::int8>(a, plan, stream);
    case KvType::simq4:
      return launch_packed_attention(a, plan, stream);
    case KvType::f16:
      return launch_tensor_attention<KvType::f16>(a, plan, stream);
    default:
      ensure(false, "attention: no tensor-core kernel for ", kv_type_name(a.keys.type));
  }
}

void launch_runs(const AttentionArguments& a, AttentionRuns which, rt::Stream& stream) {
  AttentionPlan plan;
  plan.which = which;
  plan.spans = spans_of(a.batch.end);
  const std::int64_t records = which == AttentionRuns::single ? a.batch.run_count : a.batch.tokens;
  plan.split = plan.spans > 1 && records * a.heads.heads <= kTensorSplit;
  launch_type(a, plan, stream);
}

}  // namespace

bool makes_codes(const AttentionArguments& a) {
  const int group = a.heads.group;
  return on_tensor_cores(a) && group <= kFewestQueries && group * a.heads.head_dim % 128 == 0;
}

void launch_attention(const AttentionArguments& a, rt::Stream& stream) {
  if (a.batch.tokens <= 0) return;
  if (!on_tensor_cores(a)) return launch_exact_attention(a, stream);
  // A batch with generation and prompts takes two launches with different block shapes, because a
  // prompt's block would process the whole context of a generated row alone. Outputs are the same.
  const bool mixed = a.batch.single_runs > 0 && a.batch.longest_run > 1;
  if (!mixed) return launch_runs(a, AttentionRuns::all, stream);
  launch_runs(a, AttentionRuns::single, stream);
  launch_runs(a, AttentionRuns::longer, stream);
}

}  // namespace leq::LEQ_GPU
