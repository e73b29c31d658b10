// The tensor types of GGUF files: block sizes, decoders, and lossless conversion to schemes of leq
// for some types. docs/gguf.md has the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tensor/quant_scheme.h"

namespace leq {

inline constexpr int kGgufGroup = 32;  // columns per scale in exact schemes
inline constexpr std::int64_t kMaxGgufBlock = 256;

struct GgufType {
  std::uint32_t id = 0;
  std::string_view name;        // "Q4_K"
  std::int64_t elements = 1;    // per block; rows are whole blocks
  std::int64_t bytes = 1;       // per block
  std::optional<DType> floats;  // for plain numbers, with elements = 1
  // Decodes a block to [elements], bit-identical to gguf-py's dequantize. nullptr for plain floats
  // and for types that have no weights.
  void (*decode)(const std::byte* block, float* out) = nullptr;
  // Extracts codes [elements] and scales [elements / group of `kept`] with value = scale * code,
  // where scales are finite f16 and codes fit into int8 and into `kept`; false if a block cannot be
  // represented so. nullptr: not available for the type.
  bool (*codes)(const std::byte* block, std::int16_t* codes, float* scales) = nullptr;
  std::string_view kept;  // name of kept_scheme
  // For k types that are also schemes of leq: extracts codes, f16 numbers (d, dmin) and bytes, in
  // the layout of ChosenCodes for q4_k, q5_k and q6_k (tensor/super_blocks.h).
  void (*super)(const std::byte* block, std::int16_t* codes, float* supers,
                std::uint8_t* subs) = nullptr;
};

// Throws Error naming `where` and the type: an unknown number, a type removed from the format, a
// type of ik_llama.cpp, or one that leq does not support.
const GgufType& require_gguf_type(std::uint32_t id, std::string_view where);

// All supported types.
std::span<const GgufType> gguf_types();

// The scheme that a type is imported as. It is exact for plain floats and types with `codes` or
// `super`, otherwise nearly exact. nullopt if the type has no weights.
std::optional<QuantScheme> kept_scheme(const GgufType& type);

}  // namespace leq
