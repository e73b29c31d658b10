// Decoders of GGUF's i-quants, which select patterns of levels from a grid: blocks of 256 numbers,
// bit-identical to gguf-py's dequantize.
#pragma once

#include <cstddef>

namespace leq {

void decode_iq2_xxs(const std::byte* block, float* out);
void decode_iq2_xs(const std::byte* block, float* out);
void decode_iq2_s(const std::byte* block, float* out);
void decode_iq3_xxs(const std::byte* block, float* out);
void decode_iq3_s(const std::byte* block, float* out);
void decode_iq1_s(const std::byte* block, float* out);
void decode_iq1_m(const std::byte* block, float* out);

}  // namespace leq
