#include "cuda/layout/weight_bytes.h"

#include "base/error.h"
#include "cuda/layout/layout.h"

namespace leq::gpu {

std::int64_t number_bytes(const WeightView& weight) {
  return weight.scheme.kind == CodeKind::f32 ? 4 : 2;
}

std::int64_t groups_of(const WeightView& weight) {
  return weight.scheme.scaling == Scaling::group ? weight.padded_columns() / weight.scheme.group
                                                 : 1;
}

WeightBytes weight_bytes(const WeightView& weight) {
  const auto aligned = [](std::int64_t bytes) {
    return static_cast<std::size_t>(round_up_to(bytes, kBlockUnit));
  };
  require(weight.scheme.is_float() || weight.scheme.takes_codes(), "weights of type ",
          scheme_name(weight.scheme), " run on the CPU alone; use ", Setting{"device"},
          " cpu, or quantize with ", Setting{"type"}, " int4 or another integer type");
  WeightBytes at;
  if (weight.scheme.is_float()) {
    at.bytes = aligned(weight.rows * float_stride(weight.columns) * number_bytes(weight));
    return at;
  }
  const int bits = weight.scheme.bits;
  at.scales_at = aligned(weight.padded_rows() * weight.padded_columns() * bits / 8);
  if (weight.scheme.is_super()) {  // the file's planes are used unchanged
    const PlaneBytes planes = plane_bytes(weight.scheme, weight.act, weight.rows, weight.columns);
    at.zeros_at = at.scales_at + aligned(static_cast<std::int64_t>(planes.scales));
    at.bytes = at.zeros_at + aligned(static_cast<std::int64_t>(planes.zeros));
    return at;
  }
  // The launch functions select kernels by the bits.
  ensure(bits == 8 || (bits >= 2 && bits <= 4), "no GPU kernel for weights of type ",
         scheme_name(weight.scheme));
  const std::int64_t groups = weight.padded_rows() * groups_of(weight);
  at.zeros_at = at.scales_at + aligned(groups * (weight.scheme.scaling == Scaling::group ? 2 : 4));
  at.bytes = at.zeros_at + (weight.scheme.kind == CodeKind::uint_ ? aligned(groups) : 0);
  return at;
}

}  // namespace leq::gpu
