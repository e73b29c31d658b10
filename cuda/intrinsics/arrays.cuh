// Arrays of arrays in registers.
#pragma once

#include <type_traits>

#include "cuda/intrinsics/simt.h"

namespace leq::LEQ_GPU {

// Calls use(x) for each number x of an array of any dimensions.
template <class T, int count, class Use>
__device__ __forceinline__ void for_each_of(T (&array)[count], Use use) {
#pragma unroll
  for (int i = 0; i < count; ++i) {
    if constexpr (std::is_array_v<T>) {
      for_each_of(array[i], use);
    } else {
      use(array[i]);
    }
  }
}
template <class T, int count, class Number>
__device__ __forceinline__ void fill(T (&array)[count], Number value) {
  for_each_of(array, [=](auto& x) { x = value; });
}

}  // namespace leq::LEQ_GPU
