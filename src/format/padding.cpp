#include "format/padding.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "base/bytes.h"
#include "format/leq_layout.h"

namespace leq {
namespace {

constexpr std::int64_t kFileColumns = 32;  // a whole number of bytes at every number of bits
constexpr std::int64_t kLeastGain = 20;    // padding is at least the 20th part of the columns
constexpr std::uint16_t kOneAsF16 = 0x3c00;

// The padding of a group with zero point has codes equal to it, so that such groups stay whole.
std::int64_t file_columns(const QuantScheme& scheme, std::int64_t columns) {
  if (scheme.kind != CodeKind::uint_) return round_up(columns, kFileColumns);
  return round_up(columns, scheme.scaling == Scaling::group ? scheme.group : kPaddedColumns);
}

// A part of a plane: equal panels, of which the file has the first `stored` of `padded` bytes.
struct Part {
  std::int64_t panels = 0, stored = 0, padded = 0;
  std::int64_t file_bytes() const { return panels * stored; }
  std::int64_t memory_bytes() const { return panels * padded; }
};

struct Parts {
  Part low, high;  // codes
  Part scales, zeros;
};

Parts parts_of(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns) {
  const std::int64_t padded = round_up(columns, kPaddedColumns);
  const std::int64_t stored = file_columns(scheme, columns);
  const std::int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
  const auto part = [&](std::uint64_t bytes, std::int64_t unit) {
    const std::int64_t panel = static_cast<std::int64_t>(bytes) / panels;
    if (unit == 0) return Part{panels, panel, panel};
    return Part{panels, panel / (padded / unit) * ((stored + unit - 1) / unit), panel};
  };
  const PlaneBytes bytes = plane_bytes(scheme, ActKind::none, rows, columns);
  const CodePlanes codes = code_planes(scheme, rows, columns);
  const std::uint64_t one_bit = bytes.codes / static_cast<std::uint64_t>(scheme.bits);
  const std::int64_t group = scheme.scaling == Scaling::group ? scheme.group : 0;
  return {part(one_bit * static_cast<std::uint64_t>(codes.low_bits), kFileColumns),
          part(one_bit * static_cast<std::uint64_t>(codes.high_bits), kFileColumns),
          part(bytes.scales, scheme.is_super() ? 0 : group), part(bytes.zeros, group)};
}

void append_stored(const Part& part, const std::byte* plane, std::vector<std::byte>& to) {
  for (std::int64_t panel = 0; panel < part.panels; ++panel, plane += part.padded) {
    to.insert(to.end(), plane, plane + part.stored);
  }
}

// Fills a part in memory from the file's bytes; `pad` is repeated in the padding.
void complete(const Part& part, const std::byte* from, std::array<std::uint8_t, 2> pad,
              std::byte* to) {
  for (std::int64_t panel = 0; panel < part.panels; ++panel, to += part.padded) {
    std::memcpy(to, from + panel * part.stored, static_cast<std::size_t>(part.stored));
    if (pad[0] == 0 && pad[1] == 0) continue;
    for (std::int64_t i = part.stored; i < part.padded; ++i) to[i] = std::byte{pad[i % 2]};
  }
}

// Sums of int8 codes, for each panel of 64 rows and `group` columns.
template <class Sum>
void put_sums(const WeightView& weight, std::int64_t group, Sum* to) {
  constexpr std::int64_t kQuadBytes = 4 * kPanelRows;
  const auto* codes = reinterpret_cast<const std::int8_t*>(weight.codes);
  const std::int64_t groups = weight.padded_rows() / kPanelRows * weight.padded_columns() / group;
  for (std::int64_t i = 0; i < groups; ++i, to += kPanelRows) {
    std::array<std::int32_t, kPanelRows> sums = {};
    for (std::int64_t quad = 0; quad < group / 4; ++quad, codes += kQuadBytes) {
      for (std::size_t row = 0; row < kPanelRows; ++row) {
        const std::int8_t* four = codes + 4 * row;
        sums[row] += four[0] + four[1] + four[2] + four[3];
      }
    }
    std::ranges::transform(sums, to, [](std::int32_t sum) { return static_cast<Sum>(sum); });
  }
}

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kLeqAlignment - 1) / kLeqAlignment * kLeqAlignment;
}

}  // namespace

bool can_leave_out_padding(const QuantScheme& scheme) { return scheme.takes_codes(); }

bool leaves_out_padding(const QuantScheme& scheme, std::int64_t columns) {
  const std::int64_t padded = round_up(columns, kPaddedColumns);
  return can_leave_out_padding(scheme) &&
         (padded - file_columns(scheme, columns)) * kLeastGain >= padded;
}

PlaneBytes unpadded_bytes(const QuantScheme& scheme, std::int64_t rows, std::int64_t columns) {
  const Parts parts = parts_of(scheme, rows, columns);
  return {static_cast<std::uint64_t>(parts.low.file_bytes() + parts.high.file_bytes()),
          static_cast<std::uint64_t>(parts.scales.file_bytes()),
          static_cast<std::uint64_t>(parts.zeros.file_bytes()), 0};
}

std::uint64_t file_bytes_of(const QuantScheme& scheme, ActKind act, std::int64_t rows,
                            std::int64_t columns) {
  const PlaneBytes bytes = leaves_out_padding(scheme, columns)
                               ? unpadded_bytes(scheme, rows, columns)
                               : plane_bytes(scheme, act, rows, columns);
  return bytes.codes + bytes.scales + bytes.zeros + bytes.sums;
}

PackedWeight without_padding(const WeightView& weight) {
  const Parts parts = parts_of(weight.scheme, weight.rows, weight.columns);
  PackedWeight stored;
  stored.scheme = weight.scheme;
  stored.act = weight.act;
  stored.rows = weight.rows;
  stored.columns = weight.columns;
  stored.scale_mul = weight.scale_mul;
  append_stored(parts.low, weight.codes, stored.codes);
  append_stored(parts.high, weight.codes + parts.low.memory_bytes(), stored.codes);
  append_stored(parts.scales, static_cast<const std::byte*>(weight.scales), stored.scales);
  append_stored(parts.zeros, reinterpret_cast<const std::byte*>(weight.zeros), stored.zeros);
  return stored;
}

std::uint64_t padded_bytes(const WeightView& weight) {
  const PlaneBytes bytes = plane_bytes(weight.scheme, weight.act, weight.rows, weight.columns);
  return aligned(bytes.codes) + aligned(bytes.scales) + aligned(bytes.zeros) + aligned(bytes.sums);
}

WeightView with_padding(const WeightView& unpadded, std::byte* to) {
  const PlaneBytes bytes =
      plane_bytes(unpadded.scheme, unpadded.act, unpadded.rows, unpadded.columns);
  const Parts parts = parts_of(unpadded.scheme, unpadded.rows, unpadded.columns);
  const ZeroBytes zero = zero_bytes(unpadded.scheme);
  WeightView view = unpadded;
  view.codes = to;
  complete(parts.low, unpadded.codes, {zero.low, zero.low}, to);
  complete(parts.high, unpadded.codes + parts.low.file_bytes(), {zero.high, zero.high},
           to + parts.low.memory_bytes());
  to += aligned(bytes.codes);
  const bool own_scales = unpadded.scheme.is_super() || unpadded.scheme.has_table();
  const std::uint16_t one = own_scales ? std::uint16_t{0} : kOneAsF16;
  view.scales = to;
  complete(parts.scales, static_cast<const std::byte*>(unpadded.scales),
           {static_cast<std::uint8_t>(one & 0xff), static_cast<std::uint8_t>(one >> 8)}, to);
  to += aligned(bytes.scales);
  if (bytes.zeros > 0) {
    view.zeros = reinterpret_cast<const std::uint8_t*>(to);
    complete(parts.zeros, reinterpret_cast<const std::byte*>(unpadded.zeros), {0, 0}, to);
    to += aligned(bytes.zeros);
  }
  if (bytes.sums == 0) return view;
  view.sums = to;
  const std::int64_t group = sum_group(view.scheme, view.act, view.columns);
  if (sums_are_per_row(view.scheme, view.act)) {
    put_sums(view, group, reinterpret_cast<std::int32_t*>(to));
  } else {
    put_sums(view, group, reinterpret_cast<std::int16_t*>(to));
  }
  return view;
}

}  // namespace leq
