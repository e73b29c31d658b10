// The k types of GGUF on the device (tensor/super_blocks.h): codes of 4, 5 or 6 bits with two
// levels of scales, in the order of the file's panels.
#pragma once

#include "cuda/kernels/launch.h"

namespace leq::LEQ_GPU {

struct SuperWeight {
  const std::uint8_t* codes = nullptr;    // the low four bits of each code, in panels of 64 rows
  const std::uint8_t* high = nullptr;     // for 5 and 6 bits: the upper bits
  const std::uint16_t* supers = nullptr;  // f16 [Np/64][ceil(Kp/256)][2 or 1][64]
  const std::uint8_t* subs = nullptr;     // [Np/64][Kp/32][2][64]; for 6 bits [Np/64][Kp/16][64]
  int bits = 4;
};
using SuperSegment = Segment<SuperWeight>;

// int8 activations x weights of a k type, summed as in docs/numerics.md. Segments share one `bits`.
struct SuperMatmul : Matmul<SuperWeight, CodeRows> {  // the sums of x are not read
  OutputCodes codes;                                  // used if makes_codes(*this)
};
void launch_super_matmul(const SuperMatmul& a, rt::Stream& stream);
// As those of launch.h, for one token.
bool makes_codes(const SuperMatmul& a);
bool joins(const SuperMatmul& a, const NormArguments& next);
void launch_joined(const SuperMatmul& a, const NormArguments& next, unsigned* tickets,
                   rt::Stream& stream);
// On tensor cores, for many tokens, by tiles of 128 x 128 (only if x has no groups of 32 columns)
// or 64 x 64; bit-identical.
void launch_super_gemm(const SuperMatmul& a, bool large, rt::Stream& stream);

// x[t] = scale * table[ids[t]] in f32; ids have the meaning described in EmbedArguments.
struct SuperEmbedArguments {
  SuperWeight table;
  std::int64_t width = 0;
  const std::int32_t* ids = nullptr;
  const std::int32_t* drawn = nullptr;
  std::int64_t tokens = 0;
  FloatRows x;
  float scale = 1;
};
void launch_super_embed(const SuperEmbedArguments& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
