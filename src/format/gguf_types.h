// The tensor types of GGUF files: sizes of blocks, the values in them, and the codes of those that
// a scheme of leq holds exactly. docs/gguf.md has the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tensor/dtype.h"
#include "tensor/quant_scheme.h"

namespace leq {

inline constexpr int kGgufGroup = 32;  // columns that share a scale in exact schemes
inline constexpr std::int64_t kMostGgufBlock = 256;

struct GgufType {
  std::uint32_t id = 0;
  std::string_view name;        // "Q4_K"
  std::int64_t elements = 1;    // of a block; a row is a whole number of blocks
  std::int64_t bytes = 1;       // of a block
  std::optional<DType> floats;  // plain numbers: elements = 1
  // The values of a block, [elements]: those of gguf-py's dequantize, bit for bit. nullptr for
  // plain numbers, and for types that hold no weights.
  void (*decode)(const std::byte* block, float* out) = nullptr;
  // Codes [elements] and scales [elements / 32] with value = scale * code, each scale a finite f16,
  // each code in [-2^(code_bits - 1), 2^(code_bits - 1) - 1]; false where this block has no such.
  // nullptr: the type has none.
  bool (*codes)(const std::byte* block, std::int16_t* codes, float* scales) = nullptr;
  int code_bits = 0;  // of kept_scheme; 0 for plain numbers
  // The k types that are schemes of leq: their codes, f16 numbers (d, dmin) and bytes, as
  // ChosenCodes of q4_k, q5_k and q6_k has them (tensor/super_blocks.h).
  void (*super)(const std::byte* block, std::int16_t* codes, float* supers,
                std::uint8_t* subs) = nullptr;
};

// Throws Error naming `where` and the type: an unknown number, a type that was removed from the
// format, one of ik_llama.cpp, one that leq does not read.
const GgufType& require_gguf_type(std::uint32_t id, std::string_view where);

// All types that can be read.
std::span<const GgufType> gguf_types();

// The scheme that a type's numbers are kept in: exactly where they are plain numbers or the type
// has `codes` or `super`, else nearly. f32, f16, bf16, int4-g32, uint8-g32, q4_k, q5_k or q6_k;
// nullopt where the type holds no weights.
std::optional<QuantScheme> kept_scheme(const GgufType& type);

}  // namespace leq
