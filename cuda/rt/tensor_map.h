// Tensor maps describe a matrix in device memory to the copy engine of compute capability 9.0: its
// tiles, and their order in shared memory. They are created on the host and passed to a kernel by
// value (LEQ_GRID_CONSTANT).
#pragma once

#include <cstdint>

namespace leq::LEQ_GPU::rt {

// The order of 16-byte pieces in shared memory. Address bits 4 and up are XORed with bits 7 and up,
// so that the same piece of neighbouring rows is in different banks. The number is the length in
// bytes of a row of the box.
enum class Swizzle : std::uint8_t { none = 0, bytes_32 = 32, bytes_64 = 64, bytes_128 = 128 };

// The hardware's descriptor (CUtensorMap); on the emulator, what simt::tensor_load reads.
struct alignas(128) TensorMap {
  unsigned char bytes[128];
};

// A matrix of bytes [rows][columns] in device memory, and the size of the box that one load copies.
struct TiledBytes {
  const void* base = nullptr;       // a multiple of 16
  std::int64_t rows = 0;            // at least 1
  std::int64_t columns = 0;         // bytes, at least 1
  std::int64_t stride = 0;          // bytes between rows, a multiple of 16
  int box_rows = 0;                 // 1 to 256
  int box_columns = 0;              // bytes, a multiple of 16, up to 256
  Swizzle swizzle = Swizzle::none;  // none, or equal to box_columns
};

// Throws Error if the driver would reject the matrix or does not support tensor maps.
TensorMap make_tensor_map(const TiledBytes& matrix);

}  // namespace leq::LEQ_GPU::rt
