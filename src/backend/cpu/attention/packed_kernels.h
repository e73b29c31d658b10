// The inner loops over packed codes of the cache (kv_layout.h), for each instruction set. All sets
// give bit-identical results (docs/numerics.md). The header has only plain data.
#pragma once

#include <cstdint>

#include "backend/cpu/attention/attention_kernels.h"

namespace leq::cpu {

// Scores of some queries against 16-key blocks of one page of one kv head. Each key has the chain
// f = fma(query[c], float(code of (key, c)), f), c ascending, beginning with f = start. The two
// halves of a page have separate queries and starts.
struct PackedScoreTile {
  int queries = 0;
  int dims = 0;                            // d
  const float* query[kQueryTile][2] = {};  // [d] for keys 0-31 and 32-63
  float start[kQueryTile][2] = {};
  const std::uint8_t* keys = nullptr;   // the head's part of its page
  int first_block = 0, last_block = 0;  // range of blocks of 16 keys
  Ahead ahead;
  float* scores[kQueryTile] = {};  // [64]; columns of this page
};

// out[q][c] = fma(weight of position j and of c's group, float(code of (j, c)), out[q][c]), with j
// ascending in [first, last).
struct PackedValueTile {
  int queries = 0;
  int dims = 0;                           // d
  int group = 0;                          // channels that share a weight: a multiple of 16, or d
  const float* weights[kQueryTile] = {};  // [groups][64]; columns of this page
  const std::uint8_t* values = nullptr;   // the head's part of its page
  std::int64_t row_bytes = 0;
  int first = 0, last = 0;  // positions in the page
  Ahead ahead;
  float* out[kQueryTile] = {};  // [d]
};

inline constexpr int kMostDims = 1024;           // dimensions of a head
inline constexpr int kPageColumns = 64;          // positions of a page
inline constexpr int kSpanBlocks = 16;           // blocks of 32 keys in a span
inline constexpr int kMostChains = kSpanBlocks;  // chains in one call of PackedKernels::chains

// z[q][i] = the chain fma(query[q][c], rows[i][c], z), with c ascending from z = +0.
struct ChainTile {
  int queries = 0;
  int dims = 0;                                 // d
  int count = 0;                                // number of rows
  const float* query[kQueryTile] = {};          // [d]
  const std::uint16_t* rows[kMostChains] = {};  // [d] f16
  float* z[kQueryTile] = {};                    // [count]
};

struct PackedKernels {
  // The arrays are indexed by packed_index(number of bits).
  void (*scores[3])(const PackedScoreTile& tile) noexcept;
  void (*values[3])(const PackedValueTile& tile) noexcept;
  void (*chains)(const ChainTile& tile) noexcept;
  // out = query * scale, with f16 scales
  void (*fold)(const float* query, const std::uint16_t* scales, int dims, float* out) noexcept;
  // scores[j] = fma(scale of j, scores[j], minimum of j * sum) for j in [first, last)
  void (*rescale)(float* scores, int first, int last, const std::uint16_t* scales,
                  const std::uint16_t* minima, float sum) noexcept;
  // Encodes finite x[0..n) as codes u below 2^bits: m = min rounded down,
  // s = (max - m) / (2^bits - 1) rounded up, u = clip(rne((x - m) / s)). The first `skipped`
  // numbers get code 0 and do not count for m and s.
  void (*encode)(const float* x, int n, int skipped, int bits, std::uint8_t* codes,
                 std::uint16_t* scale, std::uint16_t* minimum) noexcept;
  // x = H x / sqrt(n) in place for blocks of n = 2^k numbers. H is the sign matrix in natural
  // order, in steps of strides 1, 2, 4, ...; then one product with float(1 / sqrt(double(n))).
  void (*rotate)(float* x, int count, int n, float root) noexcept;
};

// The kernel table of an instruction-set level; the processor must support it.
const PackedKernels& packed_kernels(Isa isa);

constexpr int packed_index(int bits) { return bits == 8 ? 0 : bits == 4 ? 1 : 2; }

}  // namespace leq::cpu
