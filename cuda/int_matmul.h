// The two ways of an integer matmul, for int_matmul.cu, which chooses.
#pragma once

#include "cuda/launch.h"

namespace leq::LEQ_GPU {

// Tokens up to which the dot-product kernels run.
int most_gemv_tokens(int bits);
void launch_int_gemv(const IntMatmul& a, rt::Stream& stream);
void launch_int_gemm_8(const IntMatmul& a, rt::Stream& stream);
void launch_int_gemm_4(const IntMatmul& a, rt::Stream& stream);
void launch_int_gemm_3(const IntMatmul& a, rt::Stream& stream);
void launch_int_gemm_2(const IntMatmul& a, rt::Stream& stream);

}  // namespace leq::LEQ_GPU
