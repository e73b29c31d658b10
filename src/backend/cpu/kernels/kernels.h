// The kernels of the CPU backend: what the functions of each instruction set compute. All sets give
// bit-identical results (docs/numerics.md); portable.inc is the specification. The header has only
// plain data, because files that are compiled for an instruction set include it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fetch.h"

namespace leq {
enum class Isa;
}

namespace leq::cpu {

// One panel of 64 outputs times a block of tokens. Results are the same for any number of tokens in
// a block: integer sums are exact; float chains have lane k % 16 with k ascending, then add lanes
// 8, 4, 2, 1 apart. y[t][n] = sum over codes in the panel layout of tensor/weight_layout.h, scaled
// as in docs/numerics.md:
//   f = 0; for each group: f = fma(float(sum of the group), weight scale * token scale, f)
//   y = fma(f, weight scale * token scale, bias), or the plain product without a bias
// Group scales are in the first line and row scales in the second; a missing scale is 1. If neither
// side has groups, f is float(sum of the whole row).
struct IntPanel {
  // Weights: 64 outputs.
  const std::uint8_t* codes = nullptr;       // the panel's codes, 64-byte aligned
  const std::uint8_t* high_codes = nullptr;  // 3 bits: the panel's plane of third bits
  // Codes with a table: the number of code i % 16, plus `zero`; [256], 64-byte aligned.
  const std::uint8_t* table = nullptr;
  const float* row_scales = nullptr;            // [64], or null with groups
  const std::uint16_t* group_scales = nullptr;  // f16 [groups][64], or null without groups
  bool byte_scales = false;                     // group_scales are bytes: bits 7 to 14 of a f16
  float scale_mul = 1.0f;                       // factor of each group scale
  const std::int32_t* row_sums = nullptr;       // [64] sums of 8-bit codes, if no side has groups
  const std::int16_t* group_sums = nullptr;     // [groups][64] sums of codes, if a side has groups
  // Unsigned codes (uint8, and all below 8 bits) represent code - zero point.
  const std::uint8_t* zeros = nullptr;  // [64] per group, zero_stride apart; or null
  std::int64_t zero_stride = 0;         // 64; 0 if a row has one zero point
  int zero = 0;                         // if zeros is null: the zero point of all codes
  const float* bias = nullptr;          // [64] or null
  std::int64_t columns = 0;             // multiple of 16; codes of padded columns have value 0
  int group = 0;                        // columns of an int32 sum: 32, 64, 128; 0: all;
                                        // of table4 also 16
  int groups_a_token_scale = 0;         // groups that share a token scale; 0: one per row

  // Codes that will probably be read next, which a kernel may prefetch; or null and 0.
  const std::uint8_t* next_codes = nullptr;
  std::int64_t next_bytes = 0;
  Fetch fetch = Fetch::twice;  // best_fetch(); for codes of few tokens

  // Inputs of a block of tokens.
  std::int64_t tokens = 0;
  const std::uint8_t* inputs = nullptr;  // [tokens][input_stride]: q + 128 for int8 weights, else q
  std::int64_t input_stride = 0;
  const float* token_scales = nullptr;  // [tokens][token_scale_stride]
  std::int64_t token_scale_stride = 0;
  const std::int32_t* token_sums = nullptr;  // [tokens][token_sum_stride] per group (or one,
  std::int64_t token_sum_stride = 0;         // without groups); for unsigned codes only

  float* y = nullptr;  // [tokens][y_stride], 64 columns are written
  std::int64_t y_stride = 0;
  std::byte* scratch = nullptr;  // kIntScratchBytes, 64-byte aligned
};

inline constexpr std::size_t kIntScratchBytes = 224 * 1024;

// y[t][n] = sum over k of weights[n][k] * x[t][k] (+ bias[n]); float weights are row-major.
struct FloatBlock {
  const void* weights = nullptr;  // [outputs][weight_stride], f32, f16 or bf16
  std::int64_t weight_stride = 0;
  std::int64_t outputs = 0;
  std::int64_t columns = 0;     // any number above 0
  const float* bias = nullptr;  // [outputs], added to the finished sum; or null
  std::int64_t tokens = 0;
  const float* x = nullptr;  // [tokens][x_stride]
  std::int64_t x_stride = 0;
  float* y = nullptr;  // [tokens][y_stride]
  std::int64_t y_stride = 0;
  // If not null: [tokens][outputs][16] lanes with the chains' values, read at the start and written
  // at the end; y and bias are not used. columns is a multiple of 16 except in the last K tile.
  float* lanes = nullptr;
};

// One panel of 64 outputs with codes under superblock scales (q4_k, q5_k, q6_k;
// tensor/super_blocks.h) times a block of tokens.
// For each span of columns (at most 128, with a common token scale) A and B are integer sums over
// the sub-blocks: A adds sub-scale * sum of code * input, B adds sub-minimum * sum of inputs. For
// q6_k A adds sub-scale * (sum of code * input - 32 * sum of inputs), and there is no B.
// f = fma(float(A), d * token scale, f);  f = fma(-float(B), dmin * token scale, f)
// y = f + bias
struct SuperPanel {
  const std::uint8_t* codes = nullptr;       // the low 4 bits, 64-byte aligned
  const std::uint8_t* high_codes = nullptr;  // the upper 1 or 2 bits, if bits > 4
  int bits = 4;
  const std::uint16_t* super_scales = nullptr;  // f16 [superblocks][2 or 1][64]
  const std::uint8_t* sub_scales = nullptr;     // [sub-blocks][2 or 1][64]
  const float* bias = nullptr;                  // [64] or null
  std::int64_t columns = 0;                     // inputs are padded with 0 to a multiple of 128

  std::int64_t tokens = 0;
  const std::uint8_t* inputs = nullptr;  // [tokens][input_stride], signed codes
  std::int64_t input_stride = 0;
  const float* token_scales = nullptr;  // [tokens][token_scale_stride]
  std::int64_t token_scale_stride = 0;
  std::int64_t span = 128;                   // columns of an integer sum: 32, 64 or 128
  bool scale_by_span = false;                // true: a token scale per span; false: one per row
  const std::int32_t* token_sums = nullptr;  // [tokens][token_sum_stride], sums of 32 columns
  std::int64_t token_sum_stride = 0;

  float* y = nullptr;  // [tokens][y_stride], 64 columns are written
  std::int64_t y_stride = 0;
  std::byte* scratch = nullptr;  // kSuperScratchBytes, 64-byte aligned
};

inline constexpr std::size_t kSuperScratchBytes = 224 * 1024;

struct MatmulKernels {
  Isa isa{};
  void (*int8_rows)(const IntPanel& panel) noexcept = nullptr;    // group is 0
  void (*int8_groups)(const IntPanel& panel) noexcept = nullptr;  // group > 0
  void (*uint8_rows)(const IntPanel& panel) noexcept = nullptr;   // for unsigned codes
  void (*uint8_groups)(const IntPanel& panel) noexcept = nullptr;
  void (*bits4)(const IntPanel& panel) noexcept = nullptr;   // group > 0; int or uint
  void (*table4)(const IntPanel& panel) noexcept = nullptr;  // 4-bit codes of a table, group > 0
  void (*bits3)(const IntPanel& panel) noexcept = nullptr;
  void (*bits2)(const IntPanel& panel) noexcept = nullptr;
  void (*f32)(const FloatBlock& block) noexcept = nullptr;
  void (*f16)(const FloatBlock& block) noexcept = nullptr;
  void (*bf16)(const FloatBlock& block) noexcept = nullptr;
  void (*super)(const SuperPanel& panel) noexcept = nullptr;
  const char* int_tile = "";  // tokens x outputs held in registers, for plans: "6x32"
  const char* float_tile = "";
};

inline constexpr int kQueryTile = 6;     // most queries of one call; they share each loaded key
inline constexpr int kSpanTokens = 512;  // positions of a span, which share one maximum
inline constexpr int kKeyBlock = 16;     // keys that are interleaved in a page
inline constexpr int kLaneCount = 16;    // lanes of a sum over positions: position % 16
inline constexpr float kLargestF16 = 65504.0f;

// Memory that a call prefetches while it computes, because it will probably be read next.
struct Ahead {
  const std::byte* lines = nullptr;
  std::int64_t count = 0;  // lines of 64 bytes
};

// Scores of some queries against the keys of one page of one kv head. Keys that are not visible are
// computed too, from undefined memory; the caller discards their scores.
struct ScoreTile {
  int queries = 0;
  int dims = 0;                               // d
  const float* query[kQueryTile] = {};        // float keys: [d]
  const std::int8_t* codes[kQueryTile] = {};  // int8 keys: [ceil4(d)], padded with 0
  float code_scale[kQueryTile] = {};
  float code_sum[kQueryTile] = {};
  const void* keys = nullptr;             // [4][d][16], int8: [4][ceil4(d)/4][16][4]
  const std::uint16_t* scales = nullptr;  // int8: f16 [64]
  const std::uint16_t* minima = nullptr;  // int8: f16 [64]
  int first_block = 0, last_block = 0;    // range of blocks of 16 keys
  Ahead ahead;
  bool in_order = false;           // true: read float keys in memory order without prefetches
  float* scores[kQueryTile] = {};  // [64]; columns of this page
};

// out[q][c] = fma(weight of position j, value of (j, c), out[q][c]), j ascending in [first, last).
struct ValueTile {
  int queries = 0;
  int dims = 0;
  const float* weights[kQueryTile] = {};  // [64]; columns of this page
  const void* values = nullptr;           // [64][d]
  int first = 0, last = 0;                // positions in the page
  Ahead ahead;
  bool near = true;             // also prefetch lines into the L1 cache
  float* out[kQueryTile] = {};  // [d]
};

// For quantized values of one page, and queries that all see columns [first, last): lanes += p * m,
// weights = p * s. Other columns in the first and last block of 16 have no effect, and their scales
// are not read.
struct WeighTile {
  int queries = 0;
  int first = 0, last = 0;
  const std::uint16_t* scales = nullptr;  // f16 [64]
  const std::uint16_t* minima = nullptr;
  const float* p[kQueryTile] = {};  // [64]
  float* weights[kQueryTile] = {};  // [64]; may be equal to p
  float* lanes[kQueryTile] = {};    // [16]
};

struct SpanSum {
  float max = 0.0f;    // m
  float total = 0.0f;  // l
};

// The kernels that depend on the KV scheme.
struct KvKernels {
  void (*scores)(const ScoreTile& tile) noexcept;
  void (*values)(const ValueTile& tile) noexcept;
  // out = float(stored number); null for the scheme f32
  void (*widen)(const void* numbers, std::int64_t n, float* out) noexcept;
  // Converts a finite key or value x to its stored form. f16: clamped to +-65504, to nearest even.
  // int8: u8 codes, value = fma(code, scale, minimum). Floats have no scale and no minimum.
  void (*store)(const float* x, std::int64_t n, void* numbers, std::uint16_t* scale,
                std::uint16_t* minimum) noexcept;
};

struct AttentionKernels {
  KvKernels kv[3];  // indexed by KvType
  // If a head has at most this many columns, the
  // values of a single query are read in memory order.
  int columns_in_order = 0;
  // In columns [first, last) of a span of 512, first < last, scores become p = exp(s - m), m the
  // largest score. Other columns of the first and last block of 16 become 0.
  SpanSum (*softmax)(float* scores, int first, int last) noexcept;
  void (*weigh)(const WeighTile& tile) noexcept;
  // the sum of 16 lanes: adds lanes 8 apart, then 4, 2 and 1 apart
  float (*lane_total)(const float* lanes) noexcept;
  // total = fma(part, b, total * a)
  void (*merge)(const float* part, float a, float b, std::int64_t n, float* total) noexcept;
  // out = x * factor; out may be x
  void (*scale)(const float* x, float factor, std::int64_t n, float* out) noexcept;
  // out = x + addend; out may be x
  void (*shift)(const float* x, float addend, std::int64_t n, float* out) noexcept;
  // pairs (i, i + half): y0 = fma(-x1, s, x0 * c), y1 = fma(x0, s, x1 * c), in place
  void (*rotate)(const float* cosines, const float* sines, std::int64_t half, float* x) noexcept;
};

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

inline constexpr int kMaxDims = 1024;           // dimensions of a head
inline constexpr int kPageColumns = 64;         // positions of a page
inline constexpr int kSpanBlocks = 16;          // blocks of 32 keys in a span
inline constexpr int kMaxChains = kSpanBlocks;  // chains in one call of PackedKernels::chains

// z[q][i] = the chain fma(query[q][c], rows[i][c], z), with c ascending from z = +0.
struct ChainTile {
  int queries = 0;
  int dims = 0;                                // d
  int count = 0;                               // number of rows
  const float* query[kQueryTile] = {};         // [d]
  const std::uint16_t* rows[kMaxChains] = {};  // [d] f16
  float* z[kQueryTile] = {};                   // [count]
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

constexpr int packed_index(int bits) { return bits == 8 ? 0 : bits == 4 ? 1 : 2; }

// Operations on single f32 rows. A norm's sums have lanes k % 256 with k ascending; then lanes 128,
// 64, ... 1 apart are added. n > 0; pointers need no alignment unless stated.
struct RowKernels {
  // x += y
  void (*add)(const float* y, std::int64_t n, float* x) noexcept;
  // x *= y
  void (*multiply)(const float* y, std::int64_t n, float* x) noexcept;
  // out = (x * r) * gain, with r = 1 / sqrt(mean(x^2) + eps); out may be x
  void (*rms_norm)(const float* x, const float* gain, float eps, std::int64_t n,
                   float* out) noexcept;
  // out = ((x - mean) * r) * gain + beta, r from the mean of squared differences; out may be x
  void (*layer_norm)(const float* x, const float* gain, const float* beta, float eps,
                     std::int64_t n, float* out) noexcept;
  // By Activation f: out = f(gate) * up or f(gate, up); out may be gate or up
  void (*gated[3])(const float* gate, const float* up, std::int64_t n, float* out) noexcept;
  // By Activation f: out = f(x); out may be x
  void (*activated[2])(const float* x, std::int64_t n, float* out) noexcept;
  // x = x * sigmoid(gate), computed with one division: x / (1 + exp(-gate))
  void (*gate)(const float* gate, std::int64_t n, float* x) noexcept;
  // max |x|; NaN or infinity if x contains one
  float (*absmax)(const float* x, std::int64_t n) noexcept;
  // codes[k] = clip(rne(x[k] * inv), -127, 127) + offset for k < n; offset is 0 or 128, x finite.
  // Returns the sum of codes minus offset, because reading codes back would stall on the stores.
  std::int32_t (*quantize)(const float* x, std::int64_t n, float inv, int offset,
                           std::uint8_t* codes) noexcept;
};

// Gated DeltaNet: the recurrence over a block of a state's columns, and the convolution over time.
// A column's sums do not depend on the columns that are computed together with it. A block of
// columns of one value head, for neighbouring tokens of a run.
struct DeltaBlock {
  const float* query = nullptr;  // [tokens][key_dim]
  const float* key = nullptr;    // [tokens][key_dim]
  float* value = nullptr;        // [tokens][columns], rows value_stride apart: v, replaced by o
  const float* alpha = nullptr;  // [tokens]
  const float* beta = nullptr;   // [tokens]
  const float* from = nullptr;   // S [key_dim][columns] before the first token
  float* to = nullptr;           // S after the last token; may equal `from`
  std::int64_t tokens = 0, value_stride = 0;
  // The columns of S that the caller reads next, prefetched during the last token. Null: nothing.
  const float* next_state = nullptr;
  // Memory that the caller reads next and that is prefetched meanwhile: fetch_bytes for each token,
  // fetch_stride floats apart. Null: nothing.
  const float* fetch = nullptr;
  std::int64_t fetch_stride = 0;
  int fetch_bytes = 0;
  int key_dim = 0;
  int columns = 0;  // at most kDeltaColumns
};

struct DeltaKernels {
  // For each token and column j:
  //   t = S^T k; u = (v - alpha t) beta; S_i = fma(k_i, u, alpha S_i); o = S^T q
  // where v - alpha t is one fma. Sums over i have four lanes i % 4, each an fma chain with i
  // ascending from +0, and end as (lane 0 + lane 1) + (lane 2 + lane 3).
  void (*recur)(const DeltaBlock& block) noexcept;
  // c = conv[0] * x[0], then c = fma(conv[j], x[j], c) for j = 1 ... taps - 1; out = silu(c) or,
  // unless `activated`, c. The weights of tap j begin at conv + j * stride. out may be one of x.
  void (*convolve)(const float* const* x, const float* conv, std::int64_t stride, int taps,
                   bool activated, std::int64_t n, float* out) noexcept;
};

// The kernels of one instruction set. Levels may share tables.
struct KernelLevel {
  const MatmulKernels* matmul = nullptr;
  const RowKernels* rows = nullptr;
  const AttentionKernels* attention = nullptr;
  const PackedKernels* packed = nullptr;
  const DeltaKernels* delta = nullptr;
};

// The processor must support the level. Throws Error if the build does not have it.
const KernelLevel& kernel_level(Isa isa);
inline const MatmulKernels& matmul_kernels(Isa isa) { return *kernel_level(isa).matmul; }
inline const RowKernels& row_kernels(Isa isa) { return *kernel_level(isa).rows; }
inline const AttentionKernels& attention_kernels(Isa isa) { return *kernel_level(isa).attention; }
inline const PackedKernels& packed_kernels(Isa isa) { return *kernel_level(isa).packed; }
inline const DeltaKernels& delta_kernels(Isa isa) { return *kernel_level(isa).delta; }

}  // namespace leq::cpu
