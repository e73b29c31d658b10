// Device memory with numbers in it, and the linears of llama-7b, for programs that time kernels.
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
  // Random bytes of 0 to `largest`. Throws Error where the device has no room.
  Memory(std::size_t bytes, int largest, rt::Stream& stream);
  // One 4-byte pattern over and over: 0x3c003c00 is f16 ones, 0x3f800000 an f32 one.
  static Memory filled(std::size_t bytes, std::uint32_t pattern, rt::Stream& stream);
  // These bytes over and over.
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
  std::vector<int> rows;  // of each segment
  int columns;
  Finish finish;
  int act_group;  // columns of one scale of the activations: 128, or 0 for the row

  int outputs() const;
  const char* act() const { return act_group == 0 ? "row" : "g128"; }
  double products(std::int64_t tokens) const {
    return static_cast<double>(tokens) * outputs() * columns;
  }
};
// Those of llama-7b, activations quantized as `leq-quantize` has it; `tiny`: a 32nd in each
// direction.
std::vector<LinearShape> llama_linears(bool tiny);

// More than any second cache: launches that take copies in turn, so many, read from memory.
inline constexpr std::size_t kRotatedBytes = std::size_t{640} << 20;
// How many of `each` bytes fill about `bytes`, 1 to 64.
int copies_filling(std::size_t bytes, std::size_t each);

// Several copies of one linear of b bits, and rows of activations: inputs of launch_int_matmul and,
// with 16 bits (f16) or weights alone quantized, of launch_float_matmul, launch_weight_only_matmul.
class IntLinear {
 public:
  // group 0: a scale for each row (8 bits alone), or none (16 bits). As many copies as fill about
  // `bytes`.
  IntLinear(const LinearShape& shape, int bits, int group, std::int64_t tokens, std::size_t bytes,
            rt::Stream& stream);

  int copies() const { return copies_; }
  std::size_t weight_bytes() const { return copy_bytes_ + scale_bytes_; }  // of one copy
  IntMatmul arguments(int copy) const;
  WeightOnlyMatmul weight_only(int copy) const;  // act none
  FloatMatmul f16(int copy) const;

 private:
  TermRows terms() const;

  LinearShape shape_;
  int bits_, group_;
  std::int64_t tokens_;
  TermOrder order_;  // what the backend would take
  std::size_t copy_bytes_, scale_bytes_;
  int copies_;
  Memory codes_, scales_, x_, x_scales_, x_sums_, pieces_, piece_scales_, out_;
};

}  // namespace leq::LEQ_GPU::bench
