// Tensor maps of the emulator contain the arguments unchanged, after the driver's checks
// (cuTensorMapEncodeTiled) and one more: rows of a swizzled box must fill the swizzle's span.
#include "cuda/rt/tensor_map.h"

#include <cstring>

#include "base/error.h"

namespace leq::LEQ_GPU::rt {

TensorMap make_tensor_map(const TiledBytes& matrix) {
  const auto expect = [](bool holds, const char* what, std::int64_t found) {
    ensure(holds, "tensor map: ", what, ", found ", found);
  };
  const auto base = reinterpret_cast<std::uintptr_t>(matrix.base);
  const int span = static_cast<int>(matrix.swizzle);
  constexpr std::int64_t kMost = std::int64_t{1} << 32;
  expect(base != 0 && base % 16 == 0, "expected a base that is a multiple of 16",
         static_cast<std::int64_t>(base % 16));
  expect(matrix.rows >= 1 && matrix.rows <= kMost, "expected 1 to 2^32 rows", matrix.rows);
  expect(matrix.columns >= 1 && matrix.columns <= kMost, "expected 1 to 2^32 columns",
         matrix.columns);
  expect(matrix.stride % 16 == 0 && matrix.stride > 0 && matrix.stride < std::int64_t{1} << 40,
         "expected a stride that is a multiple of 16 below 2^40", matrix.stride);
  expect(matrix.box_rows >= 1 && matrix.box_rows <= 256, "expected a box of 1 to 256 rows",
         matrix.box_rows);
  expect(matrix.box_columns >= 16 && matrix.box_columns <= 256 && matrix.box_columns % 16 == 0,
         "expected a box of 16 to 256 columns, a multiple of 16", matrix.box_columns);
  expect(span == 0 || matrix.box_columns == span,
         "expected a box with as many columns as the swizzle has bytes", matrix.box_columns);
  TensorMap map = {};
  static_assert(sizeof matrix <= sizeof map.bytes);
  std::memcpy(map.bytes, &matrix, sizeof matrix);
  return map;
}

}  // namespace leq::LEQ_GPU::rt
