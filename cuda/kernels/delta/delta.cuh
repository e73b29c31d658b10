// Code shared by the kernels of Gated DeltaNet's recurrence, in which a warp has eight columns of S
// of one value head in registers.
#pragma once

#include "backend/operations.h"
#include "cuda/intrinsics/reduce.cuh"
#include "cuda/intrinsics/simt.h"
#include "cuda/kernels/delta/delta.h"

namespace leq::LEQ_GPU {

// A layer's part of a state at byte `at`. A null pointer stands for zeros.
__device__ __forceinline__ float* state_part(std::int64_t at, const std::uint32_t (&halves)[2]) {
  const std::uint64_t state = static_cast<std::uint64_t>(halves[1]) << 32 | halves[0];
  if (state == 0) return nullptr;
  return reinterpret_cast<float*>(state + static_cast<std::uint64_t>(at));
}

// Returns a convolution's input at token `token` of a run. A negative index is a token before the
// run; its input is read from earlier runs of the same sequence, or else from the state.
// row_input(row): the input of a row of the batch; kept_input(state, i): input `token` = i < 0 of
// the layer's part of a state.
template <class RowInput, class KeptInput>
__device__ __forceinline__ float conv_input(const AttentionBatch& batch, int run,
                                            std::int64_t token, std::int64_t state_at,
                                            const RowInput& row_input,
                                            const KeptInput& kept_input) {
  const AttentionRun* at = batch.runs + run;
  while (token < 0 && at->previous_run >= 0) {
    at = batch.runs + at->previous_run;
    token += at->rows;
  }
  if (token >= 0) return row_input(at->first_row + token);
  const float* const from = state_part(state_at, at->state_from);
  return from == nullptr ? 0.0f : kept_input(from, token);
}

// Where a step stores a layer's last inputs: the layer's part of the state for a sequence's last
// token of the step, null for others. States are never read and written in the same step.
__device__ __forceinline__ float* written_state(const AttentionRun& run, std::int64_t token,
                                                std::int64_t state_at) {
  const bool last = run.next_run < 0 && token == run.rows - 1;
  return last ? state_part(state_at, run.state_to) : nullptr;
}

// A lane's quarter of a column of S. Four lanes share a column, and lane c of these has rows
// c, c + 4, c + 8, ...; a sum over the column has one chain in each lane.
struct DeltaColumn {
  static constexpr int kLanes = 4, kRows = kDeltaKeyDims / kLanes;
  static constexpr int kOfWarp = 32 / kLanes;
  float s[kRows];

  static __device__ __forceinline__ int row(int i) {
    return kLanes * i + static_cast<int>(threadIdx.x) % kLanes;
  }
  __device__ __forceinline__ void load(const float* from, int dims, int stride) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      s[i] = from != nullptr && row(i) < dims ? from[row(i) * stride] : 0.0f;
    }
  }
  __device__ __forceinline__ void store(float* to, int dims, int stride) const {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (row(i) < dims) to[row(i) * stride] = s[i];
    }
  }
  // Returns the sum over the four lanes: (lane 0 + lane 1) + (lane 2 + lane 3).
  static __device__ __forceinline__ float joined(float x) {
    x = x + __shfl_xor_sync(kEveryLane, x, 1);
    return x + __shfl_xor_sync(kEveryLane, x, 2);
  }
  // S = alpha S; u = beta (v - S^T k); S = S + k u^T; o = S^T q. Rows beyond key_dim are 0.
  __device__ __forceinline__ float step(const float* k, const float* q, float v, float alpha,
                                        float beta) {
    float sum = 0, out = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i) sum = fmaf(k[row(i)], s[i], sum);
    const float u = fmaf(-alpha, joined(sum), v) * beta;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      s[i] = fmaf(k[row(i)], u, alpha * s[i]);
      out = fmaf(q[row(i)], s[i], out);
    }
    return joined(out);
  }
};

// The addresses of a lane's column of S of one value head.
struct DeltaPlace {
  int head, column;
  bool has_column;
  int stride;                 // distance between rows of S
  std::int64_t query, value;  // offsets in a row: of the head's q; of the column's v
  std::int64_t state;         // offset of the column in S

  // `first` is the first column of the warp.
  __device__ __forceinline__ DeltaPlace(const DeltaArguments& a, int head_of_warp, int first)
      : head(head_of_warp),
        column(first + static_cast<int>(threadIdx.x) % 32 / DeltaColumn::kLanes) {
    const int block = column & -kDeltaColumns;  // first column of its block
    has_column = column < a.value_dim;
    stride = min(kDeltaColumns, a.value_dim - block);
    query = a.query_of(head);
    value = a.value_of(head) + column;
    state = std::int64_t{head} * a.value_dim * a.key_dim + std::int64_t{block} * a.key_dim +
            column - block;
  }
};

// The inputs of a warp for one token; they are loaded one token ahead.
struct DeltaToken {
  static constexpr int kEach = kDeltaKeyDims / 32;
  float key[kEach], query[kEach];  // numbers lane, lane + 32, ...
  float value = 0, alpha = 0, beta = 0;

  __device__ __forceinline__ void load(const DeltaArguments& a, std::int64_t row,
                                       const DeltaPlace& place) {
    const float* const from = a.convolved(row);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int k = static_cast<int>(threadIdx.x) % 32 + 32 * i;
      query[i] = k < a.key_dim ? from[place.query + k] : 0.0f;
      key[i] = k < a.key_dim ? from[a.keys() + place.query + k] : 0.0f;
    }
    value = place.has_column ? from[place.value] : 0.0f;
    alpha = a.gates_of(row)[place.head];
    beta = a.gates_of(row)[a.value_heads + place.head];
  }
};

// k and q of a token in shared memory; all lanes of a warp read them.
struct DeltaRow {
  float key[kDeltaKeyDims], query[kDeltaKeyDims];
};

// Runs the recurrence over `count` rows from row `first` on; o overwrites v.
__device__ __forceinline__ void recur_rows(const DeltaArguments& a, const DeltaPlace& place,
                                           DeltaColumn& state, std::int64_t first, int count,
                                           DeltaRow& of_warp) {
  if (count <= 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  DeltaToken next;
  next.load(a, first, place);
  for (int i = 0; i < count; ++i) {
    const DeltaToken token = next;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < DeltaToken::kEach; ++k) {
      of_warp.key[lane + 32 * k] = token.key[k];
      of_warp.query[lane + 32 * k] = token.query[k];
    }
    __syncwarp();
    if (i + 1 < count) next.load(a, first + i + 1, place);
    const float out = state.step(of_warp.key, of_warp.query, token.value, token.alpha, token.beta);
    const bool writes = lane % DeltaColumn::kLanes == 0 && place.has_column;
    if (writes) a.convolved(first + i)[place.value] = out;
  }
}

// A sequence's S is loaded before its first run of a batch and stored after its last run.
__device__ __forceinline__ void load_state(const DeltaArguments& a, const AttentionRun& run,
                                           const DeltaPlace& place, DeltaColumn& state) {
  const float* const from = state_part(a.state_at, run.state_from);
  state.load(from != nullptr && place.has_column ? from + place.state : nullptr, a.key_dim,
             place.stride);
}
__device__ __forceinline__ void store_state(const DeltaArguments& a, const AttentionRun& run,
                                            const DeltaPlace& place, const DeltaColumn& state) {
  if (!place.has_column) return;
  state.store(state_part(a.state_at, run.state_to) + place.state, a.key_dim, place.stride);
}

}  // namespace leq::LEQ_GPU
