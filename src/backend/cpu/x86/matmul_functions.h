// The matmul kernels of each instruction set, for the table (x86/matmul_table.cpp).
#pragma once

#include "backend/cpu/matmul_kernels.h"

namespace leq::cpu {

void int8_rows_avx512vnni(const IntPanel& panel) noexcept;
void int8_groups_avx512vnni(const IntPanel& panel) noexcept;
void int4_groups_avx512vnni(const IntPanel& panel) noexcept;
void f32_avx512vnni(const FloatBlock& block) noexcept;
void f16_avx512vnni(const FloatBlock& block) noexcept;
void bf16_avx512vnni(const FloatBlock& block) noexcept;

void int8_rows_avx2(const IntPanel& panel) noexcept;
void int8_groups_avx2(const IntPanel& panel) noexcept;
void int4_groups_avx2(const IntPanel& panel) noexcept;
void f32_avx2(const FloatBlock& block) noexcept;
void f16_avx2(const FloatBlock& block) noexcept;
void bf16_avx2(const FloatBlock& block) noexcept;

}  // namespace leq::cpu
