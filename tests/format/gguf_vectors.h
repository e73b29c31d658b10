// Created by gguf_vectors.py with gguf-py's dequantize.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace leq::test {

struct GgufVector {
  std::string_view type;
  std::vector<int> halves;  // offsets in a block
  std::uint64_t hash;       // FNV-1a of the f32 bytes of all blocks, with -0 as 0
  float first, last;
};

inline constexpr int kGgufVectorBlocks = 500;

inline const std::vector<GgufVector> kGgufVectors = {
    {"Q4_0", {0}, 0x856e2c32d97c4079, 0.00011086463928222656f, -2.23876953125f},
    {"Q4_1", {0, 2}, 0xe823af643cb37596, 0.012571096420288086f, 0.0011234283447265625f},
    {"Q5_0", {0}, 0xd8d44673a5f63d77, -0.00048041343688964844f, -0.0004464387893676758f},
    {"Q5_1", {0, 2}, 0xe232c749c744bdf1, 0.012164592742919922f, 0.0001577138900756836f},
    {"Q8_0", {0}, 0x32240a8e11faeef4, 0.003362894058227539f, 11.09521484375f},
    {"Q2_K", {80, 82}, 0xf36dbdca500ac0b5, -0.0054473876953125f, 0.01239776611328125f},
    {"Q3_K", {108}, 0x774d22eb96e70bf4, 0.007324934005737305f, -0.00774383544921875f},
    {"Q4_K", {0, 2}, 0xc0faf3a06bcecdc8, -0.29038524627685547f, -0.06801080703735352f},
    {"Q5_K", {0, 2}, 0x6bf7edf6c3348b09, -0.286726713180542f, 0.2200469970703125f},
    {"Q6_K", {208}, 0x10af0b36064184b1, -0.5430889129638672f, -1512.263671875f},
    {"IQ4_NL", {0}, 0xeab122f3e8f279c2, 0.0012934207916259766f, -33.26171875f},
    {"IQ4_XS", {0}, 0x0e479c9d3abe576d, -0.004065036773681641f, 639.501953125f},
    {"MXFP4", {}, 0x73db4435baf5d0f5, 131072.0f, 131072.0f},
};

}  // namespace leq::test
