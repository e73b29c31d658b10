// Tensor maps: describe to the copy engine of compute capability 9.0 a matrix in device memory, its
// tiles, and their order in shared memory. Made on the host, passed to a kernel by value
// (LEQ_GRID_CONSTANT).
#pragma once

#include <cstdint>

namespace leq::LEQ_GPU::rt {

// The order of 16-byte pieces: bits 4 and up of the address in shared memory are XORed with bits 7
// and up, so that the same piece of neighbouring rows is in different banks. The number is the
// bytes of a row of the box.
enum class Swizzle : std::uint8_t { none = 0, bytes_32 = 32, bytes_64 = 64, bytes_128 = 128 };

// The hardware's descriptor (CUtensorMap); on the emulator that of simt::tensor_load.
struct alignas(128) TensorMap {
  unsigned char bytes[128];
};

// A matrix of bytes [rows][columns] in device memory, and the box of it that one load copies.
struct TiledBytes {
  const void* base = nullptr;       // a multiple of 16
  std::int64_t rows = 0;            // at least 1
  std::int64_t columns = 0;         // bytes, at least 1
  std::int64_t stride = 0;          // bytes from one row to the next, a multiple of 16
  int box_rows = 0;                 // 1 to 256
  int box_columns = 0;              // bytes, a multiple of 16, up to 256
  Swizzle swizzle = Swizzle::none;  // none, or as many bytes as box_columns
};

// Throws Error where the driver would refuse it, or does not support tensor maps.
TensorMap make_tensor_map(const TiledBytes& matrix);

}  // namespace leq::LEQ_GPU::rt
