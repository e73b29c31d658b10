#include "backend/cpu/quantize_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace leq::cpu {
namespace {

constexpr float kSmallest = 1e-12f;  // below it a group counts as zero

struct Target {
  std::uint8_t* codes;  // of the whole row
  float* scales;
  std::int32_t* sums;
  int offset;
  int sum_group;
};

// x[count] at columns first..., with one scale.
bool quantize_group(const RowKernels& kernels, const float* x, std::int64_t first,
                    std::int64_t count, float& scale, const Target& target) {
  const float largest = kernels.absmax(x, count);
  if (!std::isfinite(largest)) return false;
  std::uint8_t* codes = target.codes + first;
  if (largest < kSmallest) {
    scale = 1.0f;
    std::memset(codes, target.offset, static_cast<std::size_t>(count));
    return true;
  }
  scale = largest / 127.0f;
  kernels.quantize(x, count, 127.0f / largest, target.offset, codes);
  return true;
}

// Code sums of the columns [first, last), first at the beginning of a sum group.
void store_sums(const RowKernels& kernels, std::int64_t first, std::int64_t last,
                const Target& target) {
  for (std::int64_t k = first; k < last; k += target.sum_group) {
    const std::int64_t count = std::min<std::int64_t>(target.sum_group, last - k);
    target.sums[k / target.sum_group] = kernels.code_sum(target.codes + k, count, target.offset);
  }
}

}  // namespace

bool quantize_columns(const RowKernels& kernels, const float* x, std::int64_t row,
                      std::int64_t first, std::int64_t count, Rows& out) noexcept {
  const Target target{out.codes + row * out.code_stride, out.scales + row * out.scale_stride,
                      out.sums + row * out.sum_stride, out.format.offset_codes ? 128 : 0,
                      out.format.sum_group};
  const std::int64_t group = out.format.act == ActKind::g128 ? 128 : count;
  for (std::int64_t k = 0; k < count; k += group) {
    const std::int64_t columns = std::min(group, count - k);
    float& scale = target.scales[out.format.act == ActKind::g128 ? (first + k) / 128 : 0];
    if (!quantize_group(kernels, x + k, first + k, columns, scale, target)) return false;
  }
  std::int64_t last = first + count;
  if (last == out.width) {
    const std::int64_t padded = (out.width + kPaddedColumns - 1) / kPaddedColumns * kPaddedColumns;
    std::memset(target.codes + last, target.offset, static_cast<std::size_t>(padded - last));
    last = padded;
  }
  if (target.sum_group > 0) store_sums(kernels, first, last, target);
  return true;
}

void fail_not_finite(std::string_view site, std::int64_t row) {
  fail(site, ", token ", row, " of the batch: expected finite activations, found NaN or infinity;",
       " the weights may be damaged (leq-inspect --verify) or too large for this type");
}

}  // namespace leq::cpu
