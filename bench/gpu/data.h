// Device memory filled with numbers, and llama-7b's linears, for programs that measure kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cuda/kernels/launch.h"
#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU::bench {

class Memory {
 public:
  // Random bytes from 0 to `largest`. Throws Error if device memory does not suffice.
  Memory(std::size_t bytes, int largest, rt::Stream& stream);
  // Repeats a 4-byte pattern: 0x3c003c00 is two f16 ones, 0x3f800000 is one f32 one.
  static Memory filled(std::size_t bytes, std::uint32_t pattern, rt::Stream& stream);
  // Repeats the bytes of `block`.
  static Memory repeated(std::span<const std::byte> block, std::size_t bytes, rt::Stream& stream);
  ~Memory();
  Memory(Memory&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <class T>
  T* as(std::size_t byte = 0) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data_) + byte);
  }

 private:
  explicit Memory(std::size_t bytes);
  void repeat(std::span<const std::byte> block, std::size_t bytes, rt::Stream& stream) const;

  void* data_ = nullptr;
};

struct LinearShape {
  std::string name;
  std::vector<int> rows;  // rows of each segment
  int columns;
  Finish finish;
  int act_group;  // columns that share an activation scale: 128, or 0 for the row

  int outputs() const;
  const char* act() const { return act_group == 0 ? "row" : "g128"; }
  double products(std::int64_t tokens) const {
    return static_cast<double>(tokens) * outputs() * columns;
  }
};
// The linears of llama-7b, with activations quantized as by `leq-quantize`. `tiny`: a 32nd of the
// size in each direction.
std::vector<LinearShape> llama_linears(bool tiny);

// The size of all copies of the weights, which launches use in turn; it exceeds any L2 cache.
inline constexpr std::size_t kRotatedBytes = std::size_t{640} << 20;
// Returns the number of copies of `each` bytes, 1 to 64, that fill about `bytes`.
int copies_filling(std::size_t bytes, std::size_t each);

// Several copies of one linear of b bits, and rows of activations, as arguments of
// launch_int_matmul, launch_float_matmul (16 bits, f16) and launch_weight_only_matmul.
class IntLinear {
 public:
  // group 0: one scale per row (only 8 bits), or no scale (16 bits). The number of copies is such
  // that they fill about `bytes`.
  IntLinear(const LinearShape& shape, int bits, int group, std::int64_t tokens, std::size_t bytes,
            rt::Stream& stream);

  int copies() const { return copies_; }
  std::size_t weight_bytes() const { return copy_bytes_ + scale_bytes_; }  // of one copy
  IntMatmul arguments(int copy) const;
  WeightOnlyMatmul weight_only(int copy) const;  // for act none
  FloatMatmul f16(int copy) const;

 private:
  TermRows terms() const;

  LinearShape shape_;
  int bits_, group_;
  std::int64_t tokens_;
  std::size_t copy_bytes_, scale_bytes_;
  int copies_;
  Memory codes_, scales_, x_, x_scales_, x_sums_, pieces_, piece_scales_, out_;
};

}  // namespace leq::LEQ_GPU::bench
