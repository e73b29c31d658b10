// The kernels of ptx_conformance for ptx_attention.h. For operations that hardware may
// round differently (sums of an f16 mma, exp2), inputs are exact or results have a tolerance.
#include "cuda/intrinsics/ptx_attention.h"
#include "tests/cuda/ptx/run_case.cuh"

namespace leq::LEQ_GPU {
namespace {

__global__ void mma_signed_unsigned(const Word* in, Word* out) {
  in += thread() * kIn;
  int d[4] = {0, 1, -5, static_cast<int>(in[6] >> 4)};
  const Word a[4] = {in[0], in[1], in[2], in[3]};
  ptx::mma_m16n8k32_s8_u8(d, a, in[4], in[5]);
  ptx::mma_m16n8k32_s8_u8(d, a, in[5], in[7]);
  for (unsigned i = 0; i < 4; ++i) out[thread() * kOut + i] = static_cast<Word>(d[i]);
}

// Returns two subnormal f16 numbers, which are multiples of 2^-24 below 2^-14.
__device__ Word subnormals(Word word) { return word & 0x83ff83ffu; }
// Returns two random f16 numbers out of 0, 1, infinity and NaN, with signs.
__device__ Word specials(Word word) {
  const auto special = [](Word bits) {
    const Word kind = bits & 63u, sign = bits & 0x8000u;
    const Word number = kind == 0 ? 0x7e00u : kind == 1 ? 0x7c00u : kind < 32 ? 0x3c00u : 0u;
    return sign | number;
  };
  return special(word & 0xffffu) | special(word >> 16) << 16;
}

// All sums are exact, so their order does not matter.
__global__ void mma_halves(const Word* in, Word* out) {
  in += thread() * kIn;
  float d[4], e[4] = {}, f[4] = {};
  Word a[4];
  for (unsigned i = 0; i < 4; ++i) {
    d[i] = static_cast<float>(static_cast<int>(in[i]) >> 16);
    a[i] = integers(in[i]);
  }
  ptx::mma_m16n8k16_f16(d, a, integers(in[4]), integers(in[5]));
  ptx::mma_m16n8k16_f16(d, a, integers(in[6]), integers(in[7]));
  for (unsigned i = 0; i < 4; ++i) a[i] = subnormals(in[i]);
  ptx::mma_m16n8k16_f16(e, a, integers(in[4]), integers(in[5]));
  for (unsigned i = 0; i < 4; ++i) a[i] = integers(in[i]);
  ptx::mma_m16n8k16_f16(e, a, subnormals(in[6]), subnormals(in[7]));
  for (unsigned i = 0; i < 4; ++i) a[i] = specials(in[i]);
  ptx::mma_m16n8k16_f16(f, a, integers(in[4]), specials(in[5]));
  for (unsigned i = 0; i < 4; ++i) out[thread() * kOut + i] = bits_of(d[i]);
  out[thread() * kOut + 4] = bits_of(e[0] + e[1]);
  out[thread() * kOut + 5] = bits_of(e[2] - e[3]);
  out[thread() * kOut + 6] = bits_of(f[0]) ^ bits_of(f[1]) >> 1;
  out[thread() * kOut + 7] = bits_of(f[2]) ^ bits_of(f[3]) >> 1;
}

// The same for bf16, whose subnormals are multiples of 2^-133; times 2^60 they are normal f32.
__global__ void mma_brain_floats(const Word* in, Word* out) {
  in += thread() * kIn;
  float d[4], e[4] = {};
  Word a[4];
  for (unsigned i = 0; i < 4; ++i) {
    d[i] = static_cast<float>(static_cast<int>(in[i]) >> 16);
    a[i] = brain_integers(in[i]);
  }
  ptx::mma_m16n8k16_bf16(d, a, brain_integers(in[4]), brain_integers(in[5]));
  ptx::mma_m16n8k16_bf16(d, a, brain_integers(in[6]), brain_integers(in[7]));
  for (unsigned i = 0; i < 4; ++i) a[i] = in[i] & 0x807f807fu;
  ptx::mma_m16n8k16_bf16(e, a, 0x5d805d80u ^ (in[4] & 0x80008000u),
                         0x5d805d80u ^ (in[5] & 0x80008000u));
  for (unsigned i = 0; i < 4; ++i) {
    out[thread() * kOut + i] = bits_of(d[i]);
    out[thread() * kOut + 4 + i] = bits_of(e[i]);
  }
}

// tf32 inputs are integers of up to 11 bits, whose sums are exact in f32 in any order.
__global__ void mma_tf32(const Word* in, Word* out) {
  in += thread() * kIn;
  const auto number = [](Word word, int bits) {
    return bits_of(static_cast<float>(static_cast<int>(word) >> (32 - bits)));
  };
  float d[4];
  Word a[4];
  for (unsigned i = 0; i < 4; ++i) {
    d[i] = static_cast<float>(static_cast<int>(in[i]) >> 16);
    a[i] = number(in[i], 12);
  }
  ptx::mma_m16n8k8_tf32(d, a, {number(in[4], 8), number(in[5], 8)});
  ptx::mma_m16n8k8_tf32(d, a, {number(in[6], 8), number(in[7], 8)});
  for (unsigned i = 0; i < 4; ++i) out[thread() * kOut + i] = bits_of(d[i]);
}

// Each lane provides the address of one row of the matrices.
__global__ void transposed_loads(const Word* in, Word* out) {
  LEQ_SHARED(uint4[2 * kThreads], rows);
  const Word* mine = in + thread() * kIn;
  rows[threadIdx.x] = {mine[0], mine[1], mine[2], mine[3]};
  rows[kThreads + threadIdx.x] = {mine[4], mine[5], mine[6], mine[7]};
  __syncthreads();
  Word r[4];
  ptx::ldmatrix_x4_trans(r, ptx::opaque_shared(&rows[mine[0] % (2 * kThreads)]));
  for (unsigned i = 0; i < 4; ++i) out[thread() * kOut + i] = r[i];
}

__global__ void byte_words(const Word* in, Word* out) {
  in += thread() * kIn;
  out += thread() * kOut;
  out[0] = ptx::select_bytes(in[0], in[1], in[2] & 0x7777u);
  out[1] = ptx::select_bytes(in[1], in[3], 0x5140u);
  out[2] = static_cast<Word>(ptx::opaque(in[4]));
}

__device__ Word halves_of(Word both) {
  const auto one = [](Word half) { return (half & 0x7fffu) > 0x7c00u ? 0x7e00u : half; };
  return one(both & 0xffffu) | one(both >> 16) << 16;
}

__global__ void half_pairs(const Word* in, Word* out) {
  in += thread() * kIn;
  out += thread() * kOut;
  out[0] = halves_of(ptx::f16x2_of(__uint_as_float(in[0]), __uint_as_float(in[1])));
  // Numbers that are exact in f16, and numbers slightly above these.
  const float near = ptx::f16_to_f32(static_cast<std::uint16_t>(in[2]));
  out[1] = halves_of(ptx::f16x2_of(near, __uint_as_float(__float_as_uint(near) | in[3] % 0x3000u)));
  out[2] = halves_of(ptx::f16x2_sub(in[0], in[1]));
  out[3] = halves_of(ptx::f16x2_sub(in[2], in[2] ^ (in[3] & 0x00030003u)));
  out[4] = halves_of(ptx::f16x2_fma(in[4], in[5], in[6]));
  // Numbers around 1 whose sums of products almost cancel.
  const Word x = (in[4] & 0x83ff83ffu) | 0x3c003c00u, y = (in[5] & 0x83ff83ffu) | 0x3c003c00u;
  const Word z = ptx::f16x2_fma(x, y, 0);
  out[5] = halves_of(z);
  out[6] = halves_of(ptx::f16x2_fma(x, y, z ^ 0x80008000u));
  out[7] = halves_of(ptx::f16x2_fma(in[4], in[5], subnormals(in[6])));
}

__global__ void brain_float_pairs(const Word* in, Word* out) {
  const auto one = [](Word half) { return (half & 0x7fffu) > 0x7f80u ? 0x7fc0u : half; };
  for (unsigned i = 0; i < 4; ++i) {
    // Rounds the input number to bf16, and a number that is halfway between two bf16 numbers.
    const float x = __uint_as_float(in[thread() * kIn + i]);
    const float half = __uint_as_float((__float_as_uint(x) & 0xffff0000u) | 0x8000u);
    const Word both = ptx::bf16x2_of(x, half);
    out[thread() * kOut + 2 * i] = one(both & 0xffffu);
    out[thread() * kOut + 2 * i + 1] = one(both >> 16);
  }
}

// Returns 2^x in double, off by at most 2^-50: for f = x - n it is the sum of (f ln 2)^k / k!.
__device__ double exp2_of(double x) {
  const double n = x < 0 ? -static_cast<double>(static_cast<int>(0.5 - x))
                         : static_cast<double>(static_cast<int>(x + 0.5));
  const double t = (x - n) * 0.693147180559945309417;
  double sum = 1;
  for (int k = 16; k > 0; --k) sum = 1 + sum * t / k;
  for (int i = 0; i < n; ++i) sum *= 2;
  for (int i = 0; i > n; --i) sum /= 2;
  return sum;
}

// Writes the input if exp2_near is within its tolerance, otherwise the inverted input; for 0 and on
// underflow it writes the result itself.
__global__ void powers_of_two(const Word* in, Word* out) {
  in += thread() * kIn;
  out += thread() * kOut;
  for (unsigned i = 0; i < 6; ++i) {
    // The inputs are from -16 to 16 for i <= 2 and from -125 to 125 otherwise.
    const float x = static_cast<float>(static_cast<int>(in[i])) * (i < 3 ? 0x1p-27f : 0x1.f4p-25f);
    const double expected = exp2_of(x), error = ptx::exp2_near(x) - expected;
    const double most = expected * (8 + (x < 0 ? -x : x)) * 0x1p-24;
    out[i] = -most <= error && error <= most ? in[i] : ~in[i];
  }
  out[6] = bits_of(ptx::exp2_near(0.0f));
  out[7] = bits_of(ptx::exp2_near(in[6] % 2 == 0 ? -INFINITY : -1000.0f));
}

}  // namespace

std::vector<PtxCase> attention_cases() {
  return {
      {"mma_m16n8k32_s8_u8", 8, run<mma_signed_unsigned>},
      {"mma_m16n8k16_f16", 8, run<mma_halves>},
      {"mma_m16n8k16_bf16", 8, run<mma_brain_floats>},
      {"mma_m16n8k8_tf32", 8, run<mma_tf32>},
      {"ldmatrix_x4_trans, opaque_shared", 8, run<transposed_loads>},
      {"select_bytes, opaque", 8, run<byte_words>},
      {"f16x2_of, f16x2_sub, f16x2_fma", 32, run<half_pairs>},
      {"bf16x2_of", 8, run<brain_float_pairs>},
      {"exp2_near", 8, run<powers_of_two>},
  };
}

}  // namespace leq::LEQ_GPU
