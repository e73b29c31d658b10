// The chunked form for prompts processes 64 tokens at a time by matrix products. The results equal
// the recurrence's except for rounding (docs/cuda-kernels.md). alpha_i and beta_i are those of a
// value head, D_ij = alpha_(j + 1) ... alpha_i, e_i = alpha_0 ... alpha_i:
//   L = the part of beta_i (k_i . k_j) D_ij under the diagonal, T = (1 + L)^-1 diag(beta)
//   P = (q_i . k_j) D_ij on and under the diagonal, 0 above it
//   U = T (V - diag(e) K S),  O = diag(e) Q S + P U,  S = e_63 S + K^T diag(D_63) U
#include "cuda/intrinsics/arrays.cuh"
#include "cuda/intrinsics/ptx.h"
#include "cuda/intrinsics/ptx_attention.h"
#include "cuda/intrinsics/run.h"
#include "cuda/kernels/delta/delta.cuh"

namespace leq::LEQ_GPU {
namespace {

// x = high + low, with an error of at most 2^-22 of x.
struct SplitFloat {
  std::uint32_t high, low;

  __device__ __forceinline__ explicit SplitFloat(float x = 0) : high(cut(x)) {
    low = cut(x - __uint_as_float(high));
  }
  static __device__ __forceinline__ std::uint32_t cut(float x) {
    return __float_as_uint(x) & 0xffffe000u;
  }
};

// D[16][8 tiles] += A[16][8 steps] B[8 steps][8 tiles], computed by a warp; d has the layout of
// mma_m16n8k8_tf32. a(row, k) and b(k, column) return the numbers at k and k + 1 (k is even). The
// error is about 2^-20 of sum |a b|, because the products of two low parts are left out.
template <int tiles, class A, class B>
__device__ __forceinline__ void multiply_split(float (&d)[tiles][4], int steps, A a, B b) {
  // A is in global memory: this many steps of it are in flight.
  constexpr int kAhead = 4;
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
  // A lane may use any two k if A and B agree; here they are neighbours, which are contiguous.
  float2 rows[kAhead][2];
  const auto load = [&](float2(&to)[2], int step) {
    if (step >= steps) return;
    to[0] = a(g, 8 * step + 2 * t);
    to[1] = a(g + 8, 8 * step + 2 * t);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load(rows[i], i);
#pragma unroll 1
  for (int first = 0; first < steps; first += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int step = first + i, k = 8 * step + 2 * t;
      if (step >= steps) break;
      const SplitFloat x[4] = {SplitFloat(rows[i][0].x), SplitFloat(rows[i][1].x),
                               SplitFloat(rows[i][0].y), SplitFloat(rows[i][1].y)};
      load(rows[i], step + kAhead);
      const std::uint32_t high[4] = {x[0].high, x[1].high, x[2].high, x[3].high};
      const std::uint32_t low[4] = {x[0].low, x[1].low, x[2].low, x[3].low};
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
        const float2 column = b(k, 8 * tile + g);
        const SplitFloat y[2] = {SplitFloat(column.x), SplitFloat(column.y)};
        ptx::mma_m16n8k8_tf32(d[tile], low, {y[0].high, y[1].high});
        ptx::mma_m16n8k8_tf32(d[tile], high, {y[0].low, y[1].low});
        ptx::mma_m16n8k8_tf32(d[tile], high, {y[0].high, y[1].high});
      }
    }
  }
}

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kChunk = kDeltaChunk;
static_assert(kChunk == 16 * kWarps && kDeltaColumns == DeltaColumn::kOfWarp * kWarps);

// With these strides the lanes of an mma access different banks.
constexpr int kSquareStride = kChunk + 4, kStateStride = kDeltaColumns + 4;

// The whole chunks of a run; each chunk begins at a position that is a multiple of 64.
struct RunChunks {
  int first, count;  // first: row in the run; count: number of chunks

  __device__ __forceinline__ explicit RunChunks(const AttentionRun& run)
      : first(-run.first_position & (kChunk - 1)), count(max(0, run.rows - first) / kChunk) {}
};

__device__ __forceinline__ float2 pair(const float* at) {
  return *reinterpret_cast<const float2*>(at);
}

// Calls use(row, column, value) for each of a lane's sums in d, which has the layout of mma.
template <int tiles, class Use>
__device__ __forceinline__ void for_sums(const float (&d)[tiles][4], Use use) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 4; ++i) use(g + i / 2 * 8, 8 * tile + 2 * t + i % 2, d[tile][i]);
  }
}

struct Squares {
  float keys[kChunk][kSquareStride];     // k_i . k_j, then L
  float queries[kChunk][kSquareStride];  // q_i . k_j, then (1 + L)^-1
  float alpha[kChunk], beta[kChunk];
  int first_row;  // of the chunk; -1 if there is none
};

// Finds the first row of a chunk among rows 64 slot ... 64 slot + 63, which have at most one.
__device__ __forceinline__ void find_chunk(const DeltaArguments& a, Squares& shared) {
  if (threadIdx.x == 0) shared.first_row = -1;
  __syncthreads();
  const std::int64_t row = std::int64_t{blockIdx.x} * kChunk + threadIdx.x;
  if (threadIdx.x < kChunk && row < a.batch.tokens) {
    const AttentionRun& run = a.batch.runs[a.batch.row_runs[row]];
    const RunChunks chunks(run);
    const auto token = static_cast<int>(row - run.first_row) - chunks.first;
    if (token >= 0 && token % kChunk == 0 && token / kChunk < chunks.count) {
      shared.first_row = static_cast<int>(row);
    }
  }
  __syncthreads();
}

// Computes k_i . k_j and q_i . k_j, for at least all j <= i.
__device__ __forceinline__ void multiply_keys(const DeltaArguments& a, int head, Squares& shared) {
  const int first = static_cast<int>(threadIdx.x) / 32 * 16;
  const std::int64_t query = a.query_of(head), key = query + a.keys();
  const auto of = [&](std::int64_t at) {
    return [&a, &shared, at](int row, int k) {
      return pair(a.convolved(shared.first_row + row) + at + k);
    };
  };
  const auto columns = [&](int k, int column) { return of(key)(column, k); };
  const auto rows = [&](std::int64_t at) {
    return [&, at](int row, int k) { return of(at)(first + row, k); };
  };
  float sums[kChunk / 8][4] = {};
  multiply_split(sums, a.key_dim / 8, rows(key), columns);
  for_sums(sums, [&](int i, int j, float x) { shared.keys[first + i][j] = x; });
  fill(sums, 0.0f);
  multiply_split(sums, a.key_dim / 8, rows(query), columns);
  for_sums(sums, [&](int i, int j, float x) { shared.queries[first + i][j] = x; });
}

// One thread per column j computes L in place, and writes P and the decays to global memory.
__device__ __forceinline__ void decay_columns(Squares& shared, const DeltaChunk& to) {
  const int j = static_cast<int>(threadIdx.x) % kChunk;
  const bool of_keys = threadIdx.x < kChunk;
  float decay = 1;  // D_ij
  for (int i = 0; i < kChunk; ++i) {
    if (i > j) decay *= shared.alpha[i];
    if (of_keys) {
      shared.keys[i][j] = i > j ? shared.beta[i] * shared.keys[i][j] * decay : 0.0f;
      if (j == 0) to.from_start[i] = shared.alpha[0] * decay;
    } else {
      to.outputs[i * kChunk + j] = i >= j ? shared.queries[i][j] * decay : 0.0f;
    }
  }
  if (of_keys) to.to_end[j] = decay;
}

// One thread per column computes (1 + L)^-1 and writes it times beta to global memory.
__device__ __forceinline__ void invert(Squares& shared, const DeltaChunk& to) {
  const auto j = static_cast<int>(threadIdx.x);
  if (j >= kChunk) return;
  for (int i = 0; i < kChunk; ++i) {
    float sum = i == j ? 1.0f : 0.0f;
    for (int k = 0; k < i; ++k) sum = fmaf(-shared.keys[i][k], shared.queries[k][j], sum);
    shared.queries[i][j] = sum;
    to.inverse[i * kChunk + j] = sum * shared.beta[j];
  }
}

// Computes the part of a chunk that does not depend on S, by a block per (64 rows, value head).
__global__ void __launch_bounds__(kThreads)
    delta_squares(const LEQ_GRID_CONSTANT DeltaArguments a) {
  LEQ_BOUNDS(kThreads);
  LEQ_SHARED(Squares, shared);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const auto head = static_cast<int>(blockIdx.y);
  find_chunk(a, shared);
  if (shared.first_row < 0) return;
  if (threadIdx.x < kChunk) {
    const float* const gates = a.gates_of(shared.first_row + threadIdx.x);
    shared.alpha[threadIdx.x] = gates[head];
    shared.beta[threadIdx.x] = gates[a.value_heads + head];
  }
  multiply_keys(a, head, shared);
  __syncthreads();
  const DeltaChunk to = a.chunk(shared.first_row, head);
  decay_columns(shared, to);
  __syncthreads();
  invert(shared, to);
}

struct ChunkMemory {
  float state[kDeltaKeyDims][kStateStride];
  float values[kChunk][kStateStride];  // V - diag(e) K S, then U
  DeltaRow rows[kWarps];               // used by the recurrence
};

// A warp's sums, of 16 tokens (or rows of S) x 32 columns.
using TokenSums = float[kDeltaColumns / 8][4];

// S = e_63 S + K^T diag(D_63) U; each warp updates 32 rows of S.
__device__ __forceinline__ void add_keys(const DeltaArguments& a, const DeltaChunk& chunk,
                                         std::int64_t key, std::int64_t first_row,
                                         ChunkMemory& shared) {
  const float kept = chunk.from_start[kChunk - 1];
  for (int half = 0; half < 2; ++half) {
    const int first = static_cast<int>(threadIdx.x) / 32 * 32 + half * 16;
    if (first >= a.key_dim) return;
    TokenSums sums;
    fill(sums, 0.0f);
    multiply_split(
        sums, kChunk / 8,
        [&](int row, int i) {
          if (first + row >= a.key_dim) return float2{0, 0};
          const float* const at = a.convolved(first_row + i) + key + first + row;
          return float2{at[0] * chunk.to_end[i], at[a.channels()] * chunk.to_end[i + 1]};
        },
        [&](int i, int column) {
          return float2{shared.values[i][column], shared.values[i + 1][column]};
        });
    for_sums(sums, [&](int i, int j, float x) {
      float& s = shared.state[first + i][j];
      s = fmaf(kept, s, x);
    });
  }
}

// Processes one chunk: o overwrites v, and the block's columns of S are updated.
__device__ __forceinline__ void chunk_step(const DeltaArguments& a, int head, int first_column,
                                           std::int64_t first_row, ChunkMemory& shared) {
  const DeltaChunk chunk = a.chunk(first_row, head);
  const std::int64_t query = a.query_of(head), key = query + a.keys();
  const int first = static_cast<int>(threadIdx.x) / 32 * 16;  // the warp's first token
  const auto rows = [&](std::int64_t at) {
    return [&a, row = first_row + first, at](int i, int k) {
      return pair(a.convolved(row + i) + at + k);
    };
  };
  const auto square = [&](const float* from) {
    return [from, first](int i, int k) { return pair(from + (first + i) * kChunk + k); };
  };
  const auto columns = [](const auto& from) {
    return [&from](int k, int column) { return float2{from[k][column], from[k + 1][column]}; };
  };
  const auto for_values = [&](TokenSums& sums, auto use) {
    for_sums(sums, [&](int i, int j, float x) {
      const bool there = first_column + j < a.value_dim;
      float* const v = a.convolved(first_row + first + i) + a.value_of(head) + first_column + j;
      use(first + i, j, x, there, v);
    });
  };
  TokenSums sums = {}, out = {};
  multiply_split(sums, a.key_dim / 8, rows(key), columns(shared.state));
  for_values(sums, [&](int i, int j, float x, bool there, const float* v) {
    shared.values[i][j] = there ? fmaf(-chunk.from_start[i], x, *v) : 0.0f;
  });
  multiply_split(out, a.key_dim / 8, rows(query), columns(shared.state));
  __syncthreads();
  // Columns above the diagonal are zero and are skipped.
  const int steps = (first + 16) / 8;
  fill(sums, 0.0f);
  multiply_split(sums, steps, square(chunk.inverse), columns(shared.values));
  __syncthreads();
  for_sums(sums, [&](int i, int j, float x) { shared.values[first + i][j] = x; });
  const int t = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
  for (auto& tile : out) {
#pragma unroll
    for (int i = 0; i < 4; ++i) tile[i] *= chunk.from_start[first + t + i / 2 * 8];
  }
  __syncthreads();
  multiply_split(out, steps, square(chunk.outputs), columns(shared.values));
  for_values(out, [](int, int, float x, bool there, float* v) {
    if (there) *v = x;
  });
  add_keys(a, chunk, key, first_row, shared);
  __syncthreads();
}

// One block per (sequence, value head, 32 columns of S): chunk_step processes the whole chunks of a
// run, and the recurrence processes the rows before and after them.
__global__ void __launch_bounds__(kThreads, 2)
    delta_chunks(const LEQ_GRID_CONSTANT DeltaArguments a) {
  LEQ_BOUNDS(kThreads);
  LEQ_SHARED(ChunkMemory, shared);
  ptx::let_successor_start();
  ptx::wait_for_predecessor();
  const AttentionRun* run = a.batch.runs + blockIdx.x;
  if (run->previous_run >= 0) return;
  const int blocks = (a.value_dim + kDeltaColumns - 1) / kDeltaColumns;
  const int head = static_cast<int>(blockIdx.y) / blocks, warp = static_cast<int>(threadIdx.x / 32);
  const int first_column = static_cast<int>(blockIdx.y) % blocks * kDeltaColumns;
  const DeltaPlace place(a, head, first_column + warp * DeltaColumn::kOfWarp);
  float* const column = &shared.state[0][place.column - first_column];
  DeltaColumn state;
  load_state(a, *run, place, state);
  for (;;) {
    const RunChunks chunks(*run);
    const int before = min(chunks.first, run->rows), in_chunks = chunks.count * kChunk;
    recur_rows(a, place, state, run->first_row, before, shared.rows[warp]);
    if (chunks.count > 0) {
      state.store(column, kDeltaKeyDims, kStateStride);
      __syncthreads();
      for (int i = 0; i < in_chunks; i += kChunk) {
        chunk_step(a, head, first_column, run->first_row + before + i, shared);
      }
      state.load(column, kDeltaKeyDims, kStateStride);
    }
    recur_rows(a, place, state, run->first_row + before + in_chunks, run->rows - before - in_chunks,
               shared.rows[warp]);
    if (run->next_run < 0) break;
    run = a.batch.runs + run->next_run;
  }
  store_state(a, *run, place, state);
}

}  // namespace

bool has_delta_chunks(const DeltaArguments& a) {
  return !a.exact && a.batch.longest_run >= kChunk && a.key_dim % 8 == 0 && a.channels() % 2 == 0;
}

void launch_delta_chunks(const DeltaArguments& a, rt::Stream& stream) {
  const dim3 chunks = rt::grid(div_up(a.batch.tokens, kChunk), a.value_heads);
  rt::run(stream, {"delta_squares", chunks, kThreads, 0, rt::Start::early}, delta_squares, a);
  const std::int64_t columns = a.value_heads * div_up(a.value_dim, kDeltaColumns);
  rt::run(stream,
          {"delta_chunks", rt::grid(a.batch.run_count, columns), kThreads, 0, rt::Start::early},
          delta_chunks, a);
}

}  // namespace leq::LEQ_GPU
