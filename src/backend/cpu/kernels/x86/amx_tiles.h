// Shared by the AMX matmul files: the use of the eight tiles, and the division of a block of
// tokens. A panel is stored in the layout of weight tiles: 16 outputs x 4 columns per line of 64
// bytes, and 256 bytes from one quad of columns to the next.
#pragma once

#include "backend/cpu/kernels/x86/vnni.h"

namespace leq::cpu {
namespace {

// Number of tokens that fill a tile.
constexpr std::int64_t kTileTokens = 16;
// Half a unit of work is 32 tokens x 32 outputs, whose sums are in tiles 0 to 3: tiles 0 and 1 have
// the first tokens, tiles 0 and 2 the first outputs. Tiles 4 and 5 hold inputs, 6 and 7 weights.
// Sums are stored tile by tile, [4][16 tokens][16 outputs]: a load waits for earlier stores to
// addresses with the same low 12 bits, and a half's sums are 4 KB, so that the address of a tile
// must differ in these bits from the tiles stored just before.
constexpr std::int64_t kUnitTokens = 32;
constexpr std::int64_t kUnitOutputs = 32;
constexpr std::int64_t kTileNumbers = 256;
constexpr std::int64_t kHalfNumbers = 4 * kTileNumbers;
constexpr std::int64_t kBlockTokens = 256;  // tokens whose sums are kept in scratch
// Columns that are multiplied by all tokens of a block before the next columns; their weights and
// the inputs of a unit remain in the L1 cache.
constexpr std::int64_t kKTileColumns = 256;

// Configures the calling thread's tiles while this object exists: inputs have 16 rows of `columns`
// bytes, weights columns / 4 rows of 64 bytes, sums 16 rows of 64 bytes.
class Tiles {
 public:
  explicit Tiles(std::int64_t columns) {
    Layout layout;
    for (int tile = 0; tile < 8; ++tile) {
      layout.row_bytes[tile] = 64;
      layout.rows[tile] = 16;
    }
    layout.row_bytes[4] = layout.row_bytes[5] = static_cast<std::uint16_t>(columns);
    layout.rows[6] = layout.rows[7] = static_cast<std::uint8_t>(columns / 4);
    asm volatile("ldtilecfg %0" : : "m"(layout));  // g++ 12's intrinsic names 8 of 64 bytes
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

 private:
  struct alignas(64) Layout {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  };
  static_assert(sizeof(Layout) == 64);
};

// Orders earlier stores before later tile loads, because g++ 12 does not model that tile loads read
// memory.
inline __attribute__((always_inline)) void stored_for_tiles(const void* bytes) {
  asm volatile("" : : "r"(bytes) : "memory");
}

// Whether inputs or weights are unsigned bytes.
enum class Signs { input_unsigned, weight_unsigned, none_unsigned };

// Adds the products of a step to one of the four tiles of sums. Tile numbers must be literals.
template <Signs kSigns>
inline __attribute__((always_inline)) void multiply_0() {
  if constexpr (kSigns == Signs::input_unsigned) _tile_dpbusd(0, 4, 6);
  if constexpr (kSigns == Signs::weight_unsigned) _tile_dpbsud(0, 4, 6);
  if constexpr (kSigns == Signs::none_unsigned) _tile_dpbssd(0, 4, 6);
}
template <Signs kSigns>
inline __attribute__((always_inline)) void multiply_1() {
  if constexpr (kSigns == Signs::input_unsigned) _tile_dpbusd(1, 4, 7);
  if constexpr (kSigns == Signs::weight_unsigned) _tile_dpbsud(1, 4, 7);
  if constexpr (kSigns == Signs::none_unsigned) _tile_dpbssd(1, 4, 7);
}
template <Signs kSigns>
inline __attribute__((always_inline)) void multiply_2() {
  if constexpr (kSigns == Signs::input_unsigned) _tile_dpbusd(2, 5, 6);
  if constexpr (kSigns == Signs::weight_unsigned) _tile_dpbsud(2, 5, 6);
  if constexpr (kSigns == Signs::none_unsigned) _tile_dpbssd(2, 5, 6);
}
template <Signs kSigns>
inline __attribute__((always_inline)) void multiply_3() {
  if constexpr (kSigns == Signs::input_unsigned) _tile_dpbusd(3, 5, 7);
  if constexpr (kSigns == Signs::weight_unsigned) _tile_dpbsud(3, 5, 7);
  if constexpr (kSigns == Signs::none_unsigned) _tile_dpbssd(3, 5, 7);
}

// T is 2, or 1 if a block has only the 16 tokens of tiles 0 and 1.
template <int T>
inline __attribute__((always_inline)) void load_tiles(const std::uint8_t* x0,
                                                      const std::uint8_t* x1, std::int64_t stride,
                                                      const std::uint8_t* w) {
  _tile_loadd(4, x0, stride);
  _tile_loadd(6, w, 256);
  _tile_loadd(7, w + 64, 256);
  if constexpr (T == 2) _tile_loadd(5, x1, stride);
}

template <Signs kSigns, int T>
inline __attribute__((always_inline)) void multiply_step() {
  multiply_0<kSigns>();
  multiply_1<kSigns>();
  if constexpr (T == 2) {
    multiply_2<kSigns>();
    multiply_3<kSigns>();
  }
}

// The first step of new sums, which begin with 0 or with `from`; the old sums of the tiles are
// stored to `to`. A tile is stored while the others multiply, so that every second step takes 21
// instead of 30 ns. before(tile) is called before a tile is stored.
template <Signs kSigns, int T, class Before>
inline __attribute__((always_inline)) void store_and_begin(std::int32_t* to, Before before) {
  before(0);
  _tile_stored(0, to, 64);
  _tile_zero(0);
  multiply_0<kSigns>();
  before(1);
  _tile_stored(1, to + kTileNumbers, 64);
  _tile_zero(1);
  multiply_1<kSigns>();
  if constexpr (T == 2) {
    before(2);
    _tile_stored(2, to + 2 * kTileNumbers, 64);
    _tile_zero(2);
    multiply_2<kSigns>();
    before(3);
    _tile_stored(3, to + 3 * kTileNumbers, 64);
    _tile_zero(3);
    multiply_3<kSigns>();
  }
}
template <Signs kSigns, int T>
inline __attribute__((always_inline)) void store_and_continue(std::int32_t* to,
                                                              const std::int32_t* from) {
  _tile_stored(0, to, 64);
  _tile_loadd(0, from, 64);
  multiply_0<kSigns>();
  _tile_stored(1, to + kTileNumbers, 64);
  _tile_loadd(1, from + kTileNumbers, 64);
  multiply_1<kSigns>();
  if constexpr (T == 2) {
    _tile_stored(2, to + 2 * kTileNumbers, 64);
    _tile_loadd(2, from + 2 * kTileNumbers, 64);
    multiply_2<kSigns>();
    _tile_stored(3, to + 3 * kTileNumbers, 64);
    _tile_loadd(3, from + 3 * kTileNumbers, 64);
    multiply_3<kSigns>();
  }
}
inline __attribute__((always_inline)) void store_sums(std::int32_t* to) {
  _tile_stored(0, to, 64);
  _tile_stored(1, to + kTileNumbers, 64);
  _tile_stored(2, to + 2 * kTileNumbers, 64);
  _tile_stored(3, to + 3 * kTileNumbers, 64);
}

// Tokens [token, token + tokens) of a panel; at least 16 tokens.
struct TokenBlock {
  std::int64_t token = 0;
  std::int64_t tokens = 0;

  std::int64_t units() const { return (tokens + kUnitTokens - 1) / kUnitTokens; }
  std::int64_t halves() const { return units() * 2; }
  // Tiles of tokens in a half; 1 if the block has 16 tokens.
  int tiles() const { return tokens == kTileTokens ? 1 : 2; }
  // The first token of a unit's upper or lower tile. A tile that would exceed the end begins
  // earlier, so that some tokens are computed twice.
  std::int64_t first(std::int64_t unit, int tile) const {
    const std::int64_t wanted = unit * kUnitTokens + tile * kTileTokens;
    return token + (wanted < tokens - kTileTokens ? wanted : tokens - kTileTokens);
  }
};

// Calls visit(block) for blocks of nearly equal size.
template <class Visit>
inline __attribute__((always_inline)) void for_each_block(std::int64_t tokens, Visit visit) {
  const std::int64_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
  for (std::int64_t b = 0; b < blocks; ++b) {
    TokenBlock block;
    block.token = tokens * b / blocks;
    block.tokens = tokens * (b + 1) / blocks - block.token;
    visit(block);
  }
}

// Scale and bias for the finished sums of each of a panel's outputs.
struct alignas(64) FinishNumbers {
  float scales[64];
  float bias[64];
};
inline void read_finish_numbers(const IntPanel& panel, FinishNumbers& numbers) {
  for (int output = 0; output < 64; output += 16) {
    _mm512_store_ps(numbers.scales + output, panel.row_scales == nullptr
                                                 ? _mm512_set1_ps(1.0f)
                                                 : _mm512_loadu_ps(panel.row_scales + output));
    // Adding -0 does not change a product, so that outputs without bias need no other code.
    _mm512_store_ps(numbers.bias + output, panel.bias == nullptr
                                               ? _mm512_set1_ps(-0.0f)
                                               : _mm512_loadu_ps(panel.bias + output));
  }
}

// y = fma(f, weight scale * token scale, bias) for half a unit; value(token, j, at) returns f for
// the half's outputs [16 j, 16 j + 16), whose sums begin at index `at`. This is a separate loop
// with operands in registers, because finishing single rows between the steps filled the
// processor's instruction queue, so that tiles waited for L2.
template <class Value>
inline __attribute__((always_inline)) void finish_half(const IntPanel& panel,
                                                       const FinishNumbers& numbers,
                                                       const TokenBlock& block, std::int64_t half,
                                                       Value value) {
  constexpr std::int64_t kRowsAhead = 8;
  constexpr float kOne = 1.0f;
  const int output = static_cast<int>(half % 2 * kUnitOutputs);
  const __m512 scale0 = _mm512_load_ps(numbers.scales + output);
  const __m512 scale1 = _mm512_load_ps(numbers.scales + output + 16);
  const __m512 bias0 = _mm512_load_ps(numbers.bias + output);
  const __m512 bias1 = _mm512_load_ps(numbers.bias + output + 16);
  const bool by_token = panel.groups_a_token_scale == 0;
  const std::int64_t y_stride = panel.y_stride;
  const std::int64_t scale_stride = by_token ? panel.token_scale_stride : 0;
  for (int tile = 0; tile < block.tiles(); ++tile) {
    std::int64_t token = block.first(half / 2, tile);
    float* y = panel.y + token * y_stride + output;
    const float* token_scale = by_token ? panel.token_scales + token * scale_stride : &kOne;
    std::int64_t at = tile * 2 * kTileNumbers;
#pragma GCC unroll 4
    for (int row = 0; row < kTileTokens; ++row, ++token, at += 16) {
      asm volatile("prefetchw %0" : : "m"(y[kRowsAhead * y_stride]));
      asm volatile("prefetchw %0" : : "m"(y[kRowsAhead * y_stride + 16]));
      const __m512 by = _mm512_set1_ps(*token_scale);
      const __m512 f0 = value(token, 0, at);
      const __m512 f1 = value(token, 1, at + kTileNumbers);
      _mm512_storeu_ps(y, _mm512_fmadd_ps(f0, _mm512_mul_ps(by, scale0), bias0));
      _mm512_storeu_ps(y + 16, _mm512_fmadd_ps(f1, _mm512_mul_ps(by, scale1), bias1));
      y += y_stride, token_scale += scale_stride;
    }
  }
}

// Prefetches the weights of the next K tile or panel into L2, some lines in each step, because a
// burst of all lines would stall.
class FetchAhead {
 public:
  FetchAhead() = default;
  FetchAhead(const std::uint8_t* next, std::int64_t bytes, std::int64_t steps)
      : next_(next), lines_((bytes / 64 + steps - 1) / steps) {}
  inline __attribute__((always_inline)) void step() {
    for (std::int64_t line = 0; line < lines_; ++line, next_ += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(next_), _MM_HINT_T1);
    }
  }

 private:
  const std::uint8_t* next_ = nullptr;
  std::int64_t lines_ = 0;
};

}  // namespace
}  // namespace leq::cpu
