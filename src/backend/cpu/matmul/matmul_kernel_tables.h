// The matmul kernel tables, and the kernels that a table combines from the files of its instruction
// set. Kernels of other processor families are declared but not built. Code other than
// matmul_kernels(isa) does not use them.
#pragma once

#include "backend/cpu/matmul/matmul_kernels.h"

namespace leq::cpu {

const MatmulKernels& matmul_kernels_portable();
const MatmulKernels& matmul_kernels_v3();
const MatmulKernels& matmul_kernels_avx2();
const MatmulKernels& matmul_kernels_avxvnni();
const MatmulKernels& matmul_kernels_avx512();
const MatmulKernels& matmul_kernels_avx512vnni();
const MatmulKernels& matmul_kernels_avx512amx();
const MatmulKernels& matmul_kernels_neon();
const MatmulKernels& matmul_kernels_dotprod();
const MatmulKernels& matmul_kernels_i8mm();

// For few tokens; for more tokens the kernels of matmul_blocks.h are used.
void int8_rows_avx2(const IntPanel& panel) noexcept;
void int8_groups_avx2(const IntPanel& panel) noexcept;
void uint8_rows_avx2(const IntPanel& panel) noexcept;
void uint8_groups_avx2(const IntPanel& panel) noexcept;
void bits4_avx2(const IntPanel& panel) noexcept;
void bits3_avx2(const IntPanel& panel) noexcept;
void bits2_avx2(const IntPanel& panel) noexcept;
void f32_avx2(const FloatBlock& block) noexcept;
void f16_avx2(const FloatBlock& block) noexcept;
void bf16_avx2(const FloatBlock& block) noexcept;

void f32_avx512(const FloatBlock& block) noexcept;
void f16_avx512(const FloatBlock& block) noexcept;
void bf16_avx512(const FloatBlock& block) noexcept;

void int8_rows_avx512vnni(const IntPanel& panel) noexcept;
void int8_groups_avx512vnni(const IntPanel& panel) noexcept;
void uint8_rows_avx512vnni(const IntPanel& panel) noexcept;
void uint8_groups_avx512vnni(const IntPanel& panel) noexcept;
void bits4_avx512vnni(const IntPanel& panel) noexcept;
void bits3_avx512vnni(const IntPanel& panel) noexcept;
void bits2_avx512vnni(const IntPanel& panel) noexcept;

void int8_rows_avx512amx(const IntPanel& panel) noexcept;
void int8_groups_avx512amx(const IntPanel& panel) noexcept;
void uint8_rows_avx512amx(const IntPanel& panel) noexcept;
void uint8_groups_avx512amx(const IntPanel& panel) noexcept;
void bits4_avx512amx(const IntPanel& panel) noexcept;
void bits3_avx512amx(const IntPanel& panel) noexcept;
void bits2_avx512amx(const IntPanel& panel) noexcept;

void int8_rows_neon(const IntPanel& panel) noexcept;
void int8_groups_neon(const IntPanel& panel) noexcept;
void uint8_rows_neon(const IntPanel& panel) noexcept;
void uint8_groups_neon(const IntPanel& panel) noexcept;
void bits4_neon(const IntPanel& panel) noexcept;
void bits3_neon(const IntPanel& panel) noexcept;
void bits2_neon(const IntPanel& panel) noexcept;
void f32_neon(const FloatBlock& block) noexcept;
void f16_neon(const FloatBlock& block) noexcept;
void bf16_neon(const FloatBlock& block) noexcept;

void int8_rows_dotprod(const IntPanel& panel) noexcept;
void int8_groups_dotprod(const IntPanel& panel) noexcept;
void uint8_rows_dotprod(const IntPanel& panel) noexcept;
void uint8_groups_dotprod(const IntPanel& panel) noexcept;
void bits4_dotprod(const IntPanel& panel) noexcept;
void bits3_dotprod(const IntPanel& panel) noexcept;
void bits2_dotprod(const IntPanel& panel) noexcept;

}  // namespace leq::cpu
