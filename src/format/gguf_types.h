// The tensor types of GGUF files: block sizes, decoders, and the codes of those types that a scheme
// of leq represents exactly. docs/gguf.md has the table.
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
  // Decodes a block to [elements], bit for bit as gguf-py's dequantize. nullptr for plain floats,
  // and for types that hold no weights.
  void (*decode)(const std::byte* block, float* out) = nullptr;
  // Codes [elements] and scales [elements / 32] with value = scale * code, each scale a finite f16,
  // each code in [-2^(code_bits - 1), 2^(code_bits - 1) - 1]; false where a block cannot be written
  // so. nullptr: not available for the type.
  bool (*codes)(const std::byte* block, std::int16_t* codes, float* scales) = nullptr;
  int code_bits = 0;  // of kept_scheme; 0 for plain numbers
  // For the k types that are schemes of leq: codes, f16 numbers (d, dmin) and bytes, laid out as in
  // ChosenCodes of q4_k, q5_k and q6_k (tensor/super_blocks.h).
  void (*super)(const std::byte* block, std::int16_t* codes, float* supers,
                std::uint8_t* subs) = nullptr;
};

// Throws Error naming `where` and the type: an unknown number, a type that was removed from the
// format, one of ik_llama.cpp, or one that leq does not read.
const GgufType& require_gguf_type(std::uint32_t id, std::string_view where);

// All supported types.
std::span<const GgufType> gguf_types();

// The scheme that a type is imported as: exact for plain floats and for types with `codes` or
// `super`, else nearly exact. f32, f16, bf16, int4-g32, uint8-g32, q4_k, q5_k or q6_k; nullopt
// where the type holds no weights.
std::optional<QuantScheme> kept_scheme(const GgufType& type);

}  // namespace leq
