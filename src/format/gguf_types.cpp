// Decoders of GGUF's quantized block types; gguf_types.h documents the functions.
#include "format/gguf_types.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "format/gguf_iquants.h"
#include "tensor/table_codes.h"

namespace leq {

// Block layouts of the GGUF format. Each product below is exact in f32 (at most 24 bits), so only
// the subtraction in types with a minimum rounds.

namespace {

constexpr int kBlock = 32;        // elements per block of the simple types
constexpr int kSuperBlock = 256;  // elements per block of the k types

int byte_at(const std::byte* bytes, int at) { return std::to_integer<int>(bytes[at]); }

float half_at(const std::byte* bytes, int at) {
  std::uint16_t half = 0;
  std::memcpy(&half, bytes + at, sizeof half);
  return f16_to_f32(half);
}

std::uint32_t word_at(const std::byte* bytes, int at) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes + at, sizeof word);
  return word;
}

// Element `e` of 2 * half nibbles: the low nibbles of all bytes come first, then the high ones.
int nibble(const std::byte* bytes, int half, int e) {
  return e < half ? byte_at(bytes, e) & 15 : byte_at(bytes, e - half) >> 4;
}

// Element `e` of 32 five-bit codes: a nibble, with bit e of `high` as the top bit.
int five_bits(const std::byte* nibbles, std::uint32_t high, int e) {
  return nibble(nibbles, 16, e) | static_cast<int>(high >> e & 1u) << 4;
}

// 2^(e - 128), which is half of an E8M0 scale.
float half_e8m0(int exponent) { return std::ldexp(1.0f, exponent - 128); }

struct ScaleAndMin {
  int scale = 0;
  int min = 0;
};

// The six-bit scale and minimum of group `j` (32 elements) of Q4_K and Q5_K, packed in 12 bytes.
ScaleAndMin six_bits(const std::byte* b, int j) {
  if (j < 4) return {byte_at(b, j) & 63, byte_at(b, j + 4) & 63};
  return {(byte_at(b, j + 4) & 15) | (byte_at(b, j - 4) >> 6) << 4,
          (byte_at(b, j + 4) >> 4) | (byte_at(b, j) >> 6) << 4};
}

// Two-bit codes of a 256 block: bits 2k and 2k + 1 of half h (Q2_K; the low bits of Q3_K).
int two_bits(const std::byte* bytes, int e) {
  return byte_at(bytes, e / 128 * 32 + e % 32) >> (2 * (e % 128 / 32)) & 3;
}

// Q3_K: the scale, [-32, 31], of a group of 16 elements.
int q3_scale(const std::byte* b, int j) {
  const int low = j < 8 ? byte_at(b, j) & 15 : byte_at(b, j - 8) >> 4;
  return (low | (byte_at(b, 8 + j % 4) >> (2 * (j / 4)) & 3) << 4) - 32;
}

// Q3_K: a code in [-4, 3].
int q3_code(const std::byte* block, int e) {
  const int bit = byte_at(block, e % 32) >> (e / 32) & 1;
  return two_bits(block + 32, e) - (bit != 0 ? 0 : 4);
}

// Q4_K and Q5_K: the superblock's f16 numbers, and the scales and minima of its groups of 32.
void six_bit_scales(const std::byte* block, float* supers, std::uint8_t* subs) {
  supers[0] = half_at(block, 0);
  supers[1] = half_at(block, 2);
  for (int g = 0; g < 8; ++g) {
    const ScaleAndMin of = six_bits(block + 4, g);
    subs[2 * g] = static_cast<std::uint8_t>(of.scale);
    subs[2 * g + 1] = static_cast<std::uint8_t>(of.min);
  }
}

// The 256 codes of Q4_K, or the low bits of Q5_K's codes: for each 32 bytes first the low nibbles,
// then the high ones.
void split_nibbles(const std::byte* bytes, std::int16_t* codes) {
  for (int part = 0; part < 4; ++part, bytes += 32, codes += 64) {
    for (int l = 0; l < 32; ++l) {
      const auto byte = static_cast<std::uint8_t>(bytes[l]);
      codes[l] = static_cast<std::int16_t>(byte & 15);
      codes[32 + l] = static_cast<std::int16_t>(byte >> 4);
    }
  }
}

// Adds bits [shift, shift + kBits) of 32 bytes above the low four bits of 32 codes.
template <int kBits>
void add_bits(const std::byte* bytes, int shift, std::int16_t* codes) {
  for (int l = 0; l < 32; ++l) {
    const int bits = static_cast<std::uint8_t>(bytes[l]) >> shift & ((1 << kBits) - 1);
    codes[l] = static_cast<std::int16_t>(codes[l] | bits << 4);
  }
}

void decode_q4_1(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const float m = half_at(block, 2);
  for (int e = 0; e < kBlock; ++e) out[e] = static_cast<float>(nibble(block + 4, 16, e)) * d + m;
}

void decode_q5_1(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const float m = half_at(block, 2);
  const std::uint32_t high = word_at(block, 4);
  for (int e = 0; e < kBlock; ++e) {
    out[e] = static_cast<float>(five_bits(block + 8, high, e)) * d + m;
  }
}

void decode_q2_k(const std::byte* block, float* out) {
  const float d = half_at(block, 80);
  const float dmin = half_at(block, 82);
  for (int e = 0; e < kSuperBlock; ++e) {
    const int scales = byte_at(block, e / 16);
    const float scale = d * static_cast<float>(scales & 15);
    const float min = dmin * static_cast<float>(scales >> 4);
    out[e] = scale * static_cast<float>(two_bits(block + 16, e)) - min;
  }
}

void decode_q3_k(const std::byte* block, float* out) {
  const float d = half_at(block, 108);
  for (int e = 0; e < kSuperBlock; ++e) {
    const float scale = d * static_cast<float>(q3_scale(block + 96, e / 16));
    out[e] = scale * static_cast<float>(q3_code(block, e));
  }
}

void decode_iq4_xs(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  const int high = byte_at(block, 2) | byte_at(block, 3) << 8;
  for (int g = 0; g < 8; ++g) {
    const int low = byte_at(block, 4 + g / 2) >> (4 * (g % 2)) & 15;
    const float scale = d * static_cast<float>((low | (high >> (2 * g) & 3) << 4) - 32);
    for (int i = 0; i < 32; ++i) {
      const auto level = static_cast<std::size_t>(nibble(block + 8 + g * 16, 16, i));
      out[g * 32 + i] = scale * static_cast<float>(kIq4Levels[level]);
    }
  }
}

bool codes_q4_0(const std::byte* block, std::int16_t* codes, float* scales) {
  scales[0] = half_at(block, 0);
  for (int e = 0; e < kBlock; ++e) {
    codes[e] = static_cast<std::int16_t>(nibble(block + 2, 16, e) - 8);
  }
  return std::isfinite(scales[0]);
}

bool codes_q5_0(const std::byte* block, std::int16_t* codes, float* scales) {
  scales[0] = half_at(block, 0);
  const std::uint32_t high = word_at(block, 2);
  for (int e = 0; e < kBlock; ++e) {
    codes[e] = static_cast<std::int16_t>(five_bits(block + 6, high, e) - 16);
  }
  return std::isfinite(scales[0]);
}

bool codes_q8_0(const std::byte* block, std::int16_t* codes, float* scales) {
  scales[0] = half_at(block, 0);
  for (int e = 0; e < kBlock; ++e) codes[e] = static_cast<std::int8_t>(block[2 + e]);
  return std::isfinite(scales[0]);
}

// Scale [-32, 31] times code [-4, 3] is in [-124, 128]; negating both avoids 128, which is no int8.
bool codes_q3_k(const std::byte* block, std::int16_t* codes, float* scales) {
  for (int g = 0; g < kSuperBlock / kBlock; ++g) scales[g] = -half_at(block, 108);
  for (int e = 0; e < kSuperBlock; ++e) {
    codes[e] = static_cast<std::int16_t>(-q3_scale(block + 96, e / 16) * q3_code(block, e));
  }
  return std::isfinite(scales[0]);
}

bool codes_iq4_nl(const std::byte* block, std::int16_t* codes, float* scales) {
  scales[0] = half_at(block, 0);
  for (int e = 0; e < kBlock; ++e) {
    codes[e] = kIq4Levels[static_cast<std::size_t>(nibble(block + 2, 16, e))];
  }
  return std::isfinite(scales[0]);
}

// Only powers of two from 2^-24 to 2^15 are representable in f16.
bool codes_mxfp4(const std::byte* block, std::int16_t* codes, float* scales) {
  const int exponent = byte_at(block, 0) - 128;
  scales[0] = half_e8m0(byte_at(block, 0));
  for (int e = 0; e < kBlock; ++e) {
    codes[e] = kFloat4Doubles[static_cast<std::size_t>(nibble(block + 1, 16, e))];
  }
  return exponent >= -24 && exponent <= 15;
}

// A scale is E4M3 without sign, of which 0x7f is 0 here.
bool codes_nvfp4(const std::byte* block, std::int16_t* codes, float* scales) {
  for (int g = 0; g < 4; ++g) {
    const int byte = byte_at(block, g) == 0x7f ? 0 : byte_at(block, g) & 0x7f;
    scales[g] = kByteScaleFactor * f16_to_f32(half_of_byte_scale(static_cast<std::uint8_t>(byte)));
    for (int e = 0; e < 16; ++e) {
      *codes++ = kFloat4Doubles[static_cast<std::size_t>(nibble(block + 4 + 8 * g, 8, e))];
    }
  }
  return true;
}

// Ternary codes of a 256 block: minus the digit, so that the code 3 of TQ2_0, whose value is 2,
// becomes -2, and not 2, which int2 does not have.
void ternary_scales(const std::byte* block, int at, float* scales) {
  for (int g = 0; g < kSuperBlock / kBlock; ++g) scales[g] = -half_at(block, at);
}

// Five digits of base 3 in a byte: byte / 256 is a fraction, its first digit the highest. 32 bytes
// with five digits, 16 with five and 4 with four; byte j of a part has elements j, j + part, ...
bool codes_tq1_0(const std::byte* block, std::int16_t* codes, float* scales) {
  ternary_scales(block, 52, scales);
  struct Part {
    int first, bytes, digits;
  };
  for (const Part part : {Part{0, 32, 5}, Part{32, 16, 5}, Part{48, 4, 4}}) {
    for (int digit = 0, power = 1; digit < part.digits; ++digit, power *= 3) {
      for (int j = 0; j < part.bytes; ++j) {
        const int rest = byte_at(block, part.first + j) * power & 255;
        *codes++ = static_cast<std::int16_t>(1 - (rest * 3 >> 8));
      }
    }
  }
  return std::isfinite(scales[0]);
}

bool codes_tq2_0(const std::byte* block, std::int16_t* codes, float* scales) {
  ternary_scales(block, 64, scales);
  for (int e = 0; e < kSuperBlock; ++e)
    codes[e] = static_cast<std::int16_t>(1 - two_bits(block, e));
  return std::isfinite(scales[0]);
}

void super_q4_k(const std::byte* block, std::int16_t* codes, float* supers, std::uint8_t* subs) {
  six_bit_scales(block, supers, subs);
  split_nibbles(block + 16, codes);
}

void super_q5_k(const std::byte* block, std::int16_t* codes, float* supers, std::uint8_t* subs) {
  six_bit_scales(block, supers, subs);
  split_nibbles(block + 48, codes);
  for (int g = 0; g < 8; ++g, codes += 32) add_bits<1>(block + 16, g, codes);
}

void super_q6_k(const std::byte* block, std::int16_t* codes, float* supers, std::uint8_t* subs) {
  supers[0] = half_at(block, 208);
  for (int g = 0; g < 16; ++g) subs[g] = static_cast<std::uint8_t>(byte_at(block, 192 + g));
  for (int half = 0; half < 2; ++half, codes += 128) {
    for (int k = 0; k < 4; ++k) {
      const std::byte* low = block + half * 64 + k % 2 * 32;
      for (int l = 0; l < 32; ++l) {
        const auto byte = static_cast<std::uint8_t>(low[l]);
        codes[32 * k + l] = static_cast<std::int16_t>(k < 2 ? byte & 15 : byte >> 4);
      }
      add_bits<2>(block + 128 + half * 32, 2 * k, codes + 32 * k);
    }
  }
}

// Decodes a block as scale * code.
template <bool (*kCodes)(const std::byte*, std::int16_t*, float*), std::size_t kElements = kBlock,
          std::size_t kColumns = kBlock>
void decode_by_codes(const std::byte* block, float* out) {
  std::array<std::int16_t, kElements> codes;
  std::array<float, kElements / kColumns> scales;
  kCodes(block, codes.data(), scales.data());
  for (std::size_t e = 0; e < kElements; ++e) {
    out[e] = static_cast<float>(codes[e]) * scales[e / kColumns];
  }
}

// Decodes Q4_K and Q5_K: scale * code - min, with a scale and a minimum for each 32 elements.
template <void (*kSuper)(const std::byte*, std::int16_t*, float*, std::uint8_t*)>
void decode_with_minima(const std::byte* block, float* out) {
  std::array<std::int16_t, kSuperBlock> codes;
  std::array<float, 2> supers = {};
  std::array<std::uint8_t, 16> subs;
  kSuper(block, codes.data(), supers.data(), subs.data());
  for (std::size_t e = 0; e < kSuperBlock; ++e) {
    const float scale = supers[0] * static_cast<float>(subs[e / 32 * 2]);
    const float min = supers[1] * static_cast<float>(subs[e / 32 * 2 + 1]);
    out[e] = scale * static_cast<float>(codes[e]) - min;
  }
}

void decode_q6_k(const std::byte* block, float* out) {
  std::array<std::int16_t, kSuperBlock> codes;
  float d = 0;
  std::array<std::uint8_t, 16> subs;
  super_q6_k(block, codes.data(), &d, subs.data());
  for (std::size_t e = 0; e < kSuperBlock; ++e) {
    const auto scale = static_cast<std::int8_t>(subs[e / 16]);
    out[e] = d * static_cast<float>(scale) * static_cast<float>(codes[e] - 32);
  }
}

constexpr std::array<GgufType, 31> kTypes = {{
    {.id = 0, .name = "F32", .bytes = 4, .floats = DType::f32, .kept = "f32"},
    {.id = 1, .name = "F16", .bytes = 2, .floats = DType::f16, .kept = "f16"},
    {.id = 30, .name = "BF16", .bytes = 2, .floats = DType::bf16, .kept = "bf16"},
    {2, "Q4_0", 32, 18, {}, decode_by_codes<codes_q4_0>, codes_q4_0, "int4-g32"},
    {3, "Q4_1", 32, 20, {}, decode_q4_1, nullptr, "q4_k"},
    {6, "Q5_0", 32, 22, {}, decode_by_codes<codes_q5_0>, codes_q5_0, "uint8-g32"},
    {7, "Q5_1", 32, 24, {}, decode_q5_1, nullptr, "q5_k"},
    {8, "Q8_0", 32, 34, {}, decode_by_codes<codes_q8_0>, codes_q8_0, "uint8-g32"},
    {10, "Q2_K", 256, 84, {}, decode_q2_k, nullptr, "uint8-g32"},
    {11, "Q3_K", 256, 110, {}, decode_q3_k, codes_q3_k, "uint8-g32"},
    {12, "Q4_K", 256, 144, {}, decode_with_minima<super_q4_k>, nullptr, "q4_k", super_q4_k},
    {13, "Q5_K", 256, 176, {}, decode_with_minima<super_q5_k>, nullptr, "q5_k", super_q5_k},
    {14, "Q6_K", 256, 210, {}, decode_q6_k, nullptr, "q6_k", super_q6_k},
    {16, "IQ2_XXS", 256, 66, {}, decode_iq2_xxs, nullptr, "q4_k"},
    {17, "IQ2_XS", 256, 74, {}, decode_iq2_xs, nullptr, "q4_k"},
    {18, "IQ3_XXS", 256, 98, {}, decode_iq3_xxs, nullptr, "q4_k"},
    {19, "IQ1_S", 256, 50, {}, decode_iq1_s, nullptr, "q4_k"},
    {20, "IQ4_NL", 32, 18, {}, decode_by_codes<codes_iq4_nl>, codes_iq4_nl, "iq4_nl"},
    {21, "IQ3_S", 256, 110, {}, decode_iq3_s, nullptr, "q4_k"},
    {22, "IQ2_S", 256, 82, {}, decode_iq2_s, nullptr, "q4_k"},
    {23, "IQ4_XS", 256, 136, {}, decode_iq4_xs, nullptr, "iq4_nl"},
    {29, "IQ1_M", 256, 56, {}, decode_iq1_m, nullptr, "q4_k"},
    {34, "TQ1_0", 256, 54, {}, decode_by_codes<codes_tq1_0, 256>, codes_tq1_0, "int2-g32"},
    {35, "TQ2_0", 256, 66, {}, decode_by_codes<codes_tq2_0, 256>, codes_tq2_0, "int2-g32"},
    {39, "MXFP4", 32, 17, {}, decode_by_codes<codes_mxfp4>, codes_mxfp4, "mxfp4"},
    {40, "NVFP4", 64, 36, {}, decode_by_codes<codes_nvfp4, 64, 16>, codes_nvfp4, "nvfp4"},
    // These types have no weights; they are listed so that files with such tensors can be opened.
    {.id = 24, .name = "I8", .bytes = 1},
    {.id = 25, .name = "I16", .bytes = 2},
    {.id = 26, .name = "I32", .bytes = 4},
    {.id = 27, .name = "I64", .bytes = 8},
    {.id = 28, .name = "F64", .bytes = 8},
}};

struct RefusedType {
  std::uint32_t first, last;
  std::string_view why;
};
constexpr std::array<RefusedType, 8> kRefused = {{
    {4, 5, "was removed from the format (Q4_2, Q4_3); get a newer file"},
    {9, 9, "(Q8_1) holds activations, no weights"},
    {15, 15, "(Q8_K) holds activations, no weights"},
    {31, 33, "(Q4_0 repacked for ARM) was removed from the format; get the Q4_0 file"},
    {36, 38, "(IQ4_NL repacked) was removed from the format; get the IQ4_NL file"},
    {41, 41, "(Q1_0) is not read"},
    {97, 199, "is one of ik_llama.cpp, which is not read; get a file of llama.cpp"},
    {200, 400, "is a repacked one of ik_llama.cpp, which is not read; get a file of llama.cpp"},
}};

}  // namespace

const GgufType& require_gguf_type(std::uint32_t id, std::string_view where) {
  const auto known =
      std::ranges::find_if(kTypes, [&](const GgufType& type) { return type.id == id; });
  if (known != kTypes.end() && !known->name.empty()) return *known;
  const auto refused = std::ranges::find_if(
      kRefused, [&](const RefusedType& type) { return type.first <= id && id <= type.last; });
  require(refused == kRefused.end(), where, ": tensor type ", id, " ",
          refused == kRefused.end() ? "" : refused->why);
  fail(where, ": tensor type ", id, " is not known");
}

std::span<const GgufType> gguf_types() {
  const auto end = std::ranges::find_if(
      kTypes, [](const GgufType& type) { return !type.floats && type.decode == nullptr; });
  return {kTypes.begin(), end};
}

std::optional<QuantScheme> kept_scheme(const GgufType& type) { return parse_scheme(type.kept); }

}  // namespace leq
