#include "export/weight_codes.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "tensor/pack.h"
#include "tensor/unpack.cpp"

namespace leq {

bool WeightCodes::one_scale() const {
  return std::ranges::all_of(scales, [&](float scale) { return scale == scales.front(); });
}

bool has_weight_codes(const WeightView& weight) {
  return weight.scheme.is_integer() && !weight.scheme.is_super();
}

WeightCodes weight_codes(const WeightView& weight) {
  ensure(has_weight_codes(weight), "type ", scheme_name(weight.scheme), " has no plain codes");
  WeightCodes out;
  out.is_signed = weight.scheme.kind == CodeKind::int_;
  out.bits = weight.scheme.bits == 8 ? 8 : 4;
  out.rows = weight.rows;
  out.columns = weight.columns;
  out.block = weight.scheme.scaling == Scaling::group ? weight.scheme.group : weight.columns;
  out.blocks = (weight.columns + out.block - 1) / out.block;
  const auto columns = static_cast<std::size_t>(out.columns);
  out.codes.resize(static_cast<std::size_t>(out.rows) * columns);
  for (std::int64_t row = 0; row < out.rows; ++row) {
    read_row_codes(weight, row,
                   std::span(out.codes).subspan(static_cast<std::size_t>(row) * columns, columns));
    for (std::int64_t block = 0; block < out.blocks; ++block) {
      out.scales.push_back(scale_at(weight, row, block * out.block));
      if (out.is_signed) continue;
      out.zeros.push_back(static_cast<std::uint8_t>(zero_at(weight, row, block * out.block)));
    }
  }
  return out;
}

std::vector<float> weight_floats(const WeightView& weight) {
  const auto columns = static_cast<std::size_t>(weight.columns);
  std::vector<float> out(static_cast<std::size_t>(weight.rows) * columns);
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    unpack_row(weight, row,
               std::span(out).subspan(static_cast<std::size_t>(row) * columns, columns));
  }
  return out;
}

std::vector<std::byte> code_bytes(const std::vector<std::int16_t>& codes, int bits) {
  if (bits == 8) {
    std::vector<std::byte> out(codes.size());
    std::ranges::transform(codes, out.begin(),
                           [](std::int16_t code) { return static_cast<std::byte>(code); });
    return out;
  }
  std::vector<std::byte> out((codes.size() + 1) / 2);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const auto low = static_cast<unsigned>(codes[i]) & 15u;
    out[i / 2] |= static_cast<std::byte>(i % 2 == 0 ? low : low << 4);
  }
  return out;
}

}  // namespace leq
