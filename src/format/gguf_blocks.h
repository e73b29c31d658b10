// Decoders of GGUF's quantized block types; gguf_types.h documents the functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leq {

void decode_q4_0(const std::byte* block, float* out);
void decode_q4_1(const std::byte* block, float* out);
void decode_q5_0(const std::byte* block, float* out);
void decode_q5_1(const std::byte* block, float* out);
void decode_q8_0(const std::byte* block, float* out);
void decode_q2_k(const std::byte* block, float* out);
void decode_q3_k(const std::byte* block, float* out);
void decode_q4_k(const std::byte* block, float* out);
void decode_q5_k(const std::byte* block, float* out);
void decode_q6_k(const std::byte* block, float* out);
void decode_iq4_nl(const std::byte* block, float* out);
void decode_iq4_xs(const std::byte* block, float* out);
void decode_mxfp4(const std::byte* block, float* out);

bool codes_q4_0(const std::byte* block, std::int16_t* codes, float* scales);
bool codes_q5_0(const std::byte* block, std::int16_t* codes, float* scales);
bool codes_q8_0(const std::byte* block, std::int16_t* codes, float* scales);
bool codes_q3_k(const std::byte* block, std::int16_t* codes, float* scales);
bool codes_iq4_nl(const std::byte* block, std::int16_t* codes, float* scales);
bool codes_mxfp4(const std::byte* block, std::int16_t* codes, float* scales);

void super_q4_k(const std::byte* block, std::int16_t* codes, float* supers, std::uint8_t* subs);
void super_q5_k(const std::byte* block, std::int16_t* codes, float* supers, std::uint8_t* subs);
void super_q6_k(const std::byte* block, std::int16_t* codes, float* supers, std::uint8_t* subs);

}  // namespace leq
