// One panel of 64 outputs with codes under superblock scales (q4_k, q5_k, q6_k;
// tensor/super_blocks.h) times a block of tokens, for each instruction set. All sets give
// bit-identical results. The header has only plain data, because files of all sets include it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leq {
enum class Isa;
}

namespace leq::cpu {

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

using SuperKernel = void (*)(const SuperPanel& panel) noexcept;

// The kernel of an instruction-set level; the processor must support it.
SuperKernel super_kernel(Isa isa);

void super_portable(const SuperPanel& panel) noexcept;
void super_v3(const SuperPanel& panel) noexcept;
void super_avx2(const SuperPanel& panel) noexcept;
void super_avx512(const SuperPanel& panel) noexcept;
void super_avx512vnni(const SuperPanel& panel) noexcept;
void super_avx512amx(const SuperPanel& panel) noexcept;
void super_neon(const SuperPanel& panel) noexcept;
void super_dotprod(const SuperPanel& panel) noexcept;

}  // namespace leq::cpu
