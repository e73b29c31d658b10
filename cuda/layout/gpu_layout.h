// Memory layout of the GPU backend. It is plain C++ for the host in every build, so that a plan for
// a GPU needs neither the device nor a build for it.
#pragma once

#include "backend/backend.h"
#include "backend/layout.h"

namespace leq::gpu {

class GpuLayout final : public Layout {
 public:
  explicit GpuLayout(Arithmetic arithmetic);

  Arithmetic arithmetic() const { return arithmetic_; }

  // Returns the format of a linear's inputs. It has terms (16-bit parts) if tensor cores multiply
  // f32 inputs. f32 values are always kept, because kernels finish rows in f32 before they make
  // codes or terms; codes are signed. Throws Error if arithmetic is exact and the product would use
  // terms, and for experts whose weights or inputs are floats.
  RowsFormat format_for(const Linear& consumer) const override;
  RowsLayout rows(std::int64_t capacity, std::int64_t width,
                  const RowsFormat& format) const override;
  std::size_t weight_bytes(const WeightView& weight) const override;
  std::size_t page_bytes(KvPart part, KvType type, int kv_heads, int head_dim) const override;
  std::size_t delta_scratch_bytes(std::int64_t tokens, const DeltaShape& shape) const override;
  // Returns the maximum of all operations' scratch, because operations run one at a time.
  std::size_t scratch_bytes(std::int64_t tokens, const AttentionShape& shape,
                            std::int64_t context) const override;
  std::size_t exchange_bytes(std::int64_t rows, std::int64_t row_bytes) const override;
  std::string_view kv_layout() const override { return "GPU pages 1"; }

 private:
  Arithmetic arithmetic_;
};

// Returns the bytes of a page. Keys and values have the same layout unless packed (kv_codes.h).
std::size_t kv_page_bytes(KvPart part, KvType type, int kv_heads, int head_dim);

// Returns scratch for a step's rows that share a moving scale: a row's largest |x|, clip count.
constexpr std::size_t step_scratch_bytes(std::int64_t tokens) {
  return static_cast<std::size_t>(tokens) * (sizeof(float) + sizeof(unsigned));
}

}  // namespace leq::gpu
