// Where a GPU's backend puts things: plain C++ for the host in every build, so that plans for a GPU
// need neither the device nor a build for it.
#pragma once

#include "backend/gpu_options.h"
#include "backend/layout.h"

namespace leq::gpu {

class GpuLayout final : public Layout {
 public:
  explicit GpuLayout(Arithmetic arithmetic);

  Arithmetic arithmetic() const { return arithmetic_; }

  // What the weights want, and terms where tensor cores take f32 inputs; values are always kept
  // (kernels finish rows in f32 before they become codes or terms), codes signed. Throws Error
  // where arithmetic is to be exact and the product would be made of terms, and for experts whose
  // weights or inputs are floats.
  bool runs_experts() const override { return true; }
  RowsFormat format_for(const Linear& consumer) const override;
  RowsLayout rows(std::int64_t capacity, std::int64_t width,
                  const RowsFormat& format) const override;
  std::size_t weight_bytes(const WeightView& weight) const override;
  std::size_t page_bytes(KvPart part, KvType type, int kv_heads, int head_dim) const override;
  std::size_t delta_scratch_bytes(std::int64_t tokens, const DeltaShape& shape) const override;
  // Operations take turns: the largest of their scratch.
  std::size_t scratch_bytes(std::int64_t tokens, const AttentionShape& shape,
                            std::int64_t context) const override;
  std::size_t exchange_bytes(std::int64_t rows, std::int64_t row_bytes) const override;
  void read_kv(const KvHead& head, std::span<const std::byte> page,
               std::span<std::byte> out) const override;
  void write_kv(const KvHead& head, std::span<std::byte> page,
                std::span<const std::byte> in) const override;

 private:
  Arithmetic arithmetic_;
};

// A step's rows that share one moving scale: the largest |x| of each and how many were clipped.
constexpr std::size_t step_scratch_bytes(std::int64_t tokens) {
  return static_cast<std::size_t>(tokens) * (sizeof(float) + sizeof(unsigned));
}

}  // namespace leq::gpu
