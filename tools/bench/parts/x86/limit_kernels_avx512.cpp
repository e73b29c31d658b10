// Limits of AVX-512 without VNNI: all products as for AVX2 but 512 bits wide; reads as for AVX2.
#include "eval/limits/x86/limit_codes.h"
#include "eval/limits/x86/limit_floats_avx512.h"

namespace leq::cpu {

const LimitKernels& limit_kernels_avx512() {
  static const LimitKernels kKernels = [] {
    LimitKernels kernels = limit_kernels_avx2();
    set_products<64, 24, 12>(kernels);
    kernels.int8_name = "vpmaddwd (512 bits)";
    kernels.codes_name = "vpmaddubsw (512 bits)";
    kernels.f32 = f32_products;
    kernels.f64 = f64_products;
    kernels.f32_operations = kFloatChains * 16 * 2.0;
    kernels.f64_operations = kFloatChains * 8 * 2.0;
    return kernels;
  }();
  return kKernels;
}

}  // namespace leq::cpu
