// The inner loops of attention and of the cache's rows, for each instruction set. All instruction
// sets give bit-identical results (docs/numerics.md, docs/kv-cache.md). The header has only plain
// data, because files that are compiled for an instruction set include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leq {
enum class Isa;
}

namespace leq::cpu {

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

// The kernel table of an instruction-set level; the processor must support it.
const AttentionKernels& attention_kernels(Isa isa);

}  // namespace leq::cpu
