// The memory layout of a device: sizes and offsets as functions of shapes and formats. No device is
// needed, so that memory can be planned for a device that is not present.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/kv_types.h"
#include "backend/memory.h"
#include "backend/operations.h"
#include "backend/rows.h"

namespace leq {

// A block of activations in one allocation: values, codes or terms (16-bit parts), scales, sums.
struct RowsLayout {
  std::int64_t value_stride = 0, code_stride = 0, scale_stride = 0, sum_stride = 0;
  std::size_t codes_at = 0, scales_at = 0, sums_at = 0;  // byte offsets; values are at 0
  std::size_t bytes = 0;
};

class Layout {
 public:
  // Memory is allocated in multiples of `block_unit` bytes.
  explicit Layout(std::size_t block_unit) : block_unit_(block_unit) {}
  virtual ~Layout() = default;

  std::size_t block_unit() const { return block_unit_; }
  // The format of rows that `consumer` reads.
  virtual RowsFormat format_for(const Linear& consumer) const = 0;
  virtual RowsLayout rows(std::int64_t capacity, std::int64_t width,
                          const RowsFormat& format) const = 0;
  // The exact number of bytes that DeviceMemory::place allocates; 0 if weights are used in place.
  // Throws Error for a scheme that the device does not support.
  virtual std::size_t weight_bytes(const WeightView& weight) const = 0;
  // Bytes of one page of one layer: 64 positions of all kv heads.
  virtual std::size_t page_bytes(KvPart part, KvType type, int kv_heads, int head_dim) const = 0;
  // Bytes of scratch that the operations need for batches of at most `tokens` rows.
  virtual std::size_t scratch_bytes(std::int64_t tokens, const AttentionShape& shape,
                                    std::int64_t context) const = 0;
  // Like scratch_bytes, for Operations::delta_net.
  virtual std::size_t delta_scratch_bytes(std::int64_t tokens, const DeltaShape& shape) const = 0;
  // Bytes of the window through which ranks that share a model gather blocks of `rows` rows of at
  // most `row_bytes`; 0 if ranks read each other's memory.
  virtual std::size_t exchange_bytes(std::int64_t rows, std::int64_t row_bytes) const {
    static_cast<void>(rows);
    static_cast<void>(row_bytes);
    return 0;
  }

  // Names the order of numbers in a page, for saved sequences; another order has another name.
  virtual std::string_view kv_layout() const = 0;

 private:
  std::size_t block_unit_;
};

Rows allocate_rows(DeviceMemory& memory, const Layout& layout, std::int64_t capacity,
                   std::int64_t width, const RowsFormat& format);

// Code shared by the layouts of devices: the layout of a block of activations for given row
// strides, and the input format of a linear's weights.

// A device's row strides, counted in numbers, and the alignment in bytes at which each part of a
// block begins.
struct RowsSpacing {
  std::int64_t value_stride = 0, code_stride = 0, alignment = 0;
};
RowsLayout rows_layout(std::int64_t capacity, std::int64_t width, const RowsFormat& format,
                       const RowsSpacing& spacing);

// Number of 16-bit floats ("terms") that represent each f32 input of a weight; 0: f32 is used.
using TermsOf = int (*)(const WeightView& weight);

// The input format of the consumer's weights: codes, with sums of codes if weights are unsigned, or
// terms of f32 inputs if the device passes `terms_of`. f32 values are always kept. Throws Error
// if the weights need different formats.
RowsFormat rows_format(const Linear& consumer, TermsOf terms_of = nullptr);

// Memory for plans: it counts the bytes that a device would allocate, but allocates and writes
// nothing.
class CountingMemory final : public DeviceMemory {
 public:
  // `layout` must outlive this object.
  explicit CountingMemory(const Layout& layout);
  ~CountingMemory() override { drop_scratch(); }

  std::optional<DeviceMemoryInfo> info() const override { return std::nullopt; }
  void plan(std::size_t, std::size_t) override {}
  // Counts the weight's bytes and returns the view unchanged.
  WeightView place(const WeightView& weight, std::vector<Buffer>& owner) override;
  UploadReport finish_placing() override { return {}; }
  void copy(std::byte*, const std::byte*, std::size_t) override {}
  void write(std::byte*, std::span<const std::byte>) override {}
  void read(const std::byte*, std::span<std::byte>) override {}

 private:
  std::byte* allocate_block(std::size_t bytes) override;
  void free_block(std::byte*, std::size_t) noexcept override {}

  const Layout& layout_;
  std::uintptr_t next_;  // the next block's address: unique, not backed by memory
};

}  // namespace leq
