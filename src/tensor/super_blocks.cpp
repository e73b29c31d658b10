#include "tensor/super_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "tensor/code_formats.h"
#include "tensor/super_fit.h"

namespace leq {
namespace {

// The stored numbers of one superblock of a row and of its sub-blocks.
struct SuperScale {
  float d = 0, dmin = 0;
};
struct SubScale {
  int scale = 0, min = 0;
};

float value_of(CodeKind kind, const SuperScale& super, const SubScale& sub, int code) {
  const float scale = super.d * static_cast<float>(sub.scale);
  if (kind == CodeKind::q6_k) return scale * static_cast<float>(code - kSuper6Zero);
  return scale * static_cast<float>(code) - super.dmin * static_cast<float>(sub.min);
}

int sub_number(CodeKind kind, std::uint8_t byte) {
  return kind == CodeKind::q6_k ? static_cast<std::int8_t>(byte) : byte;
}

template <CodeKind kKind>
PlaneBytes super_planes(std::int64_t padded_rows, std::int64_t padded_columns) {
  const SuperLayout layout = super_layout(kKind);
  PlaneBytes bytes;
  bytes.scales = static_cast<std::uint64_t>(padded_rows * layout.super_blocks(padded_columns) *
                                            layout.supers * 2);
  bytes.zeros =
      static_cast<std::uint64_t>(padded_rows * layout.sub_blocks(padded_columns) * layout.subs);
  return bytes;
}

template <CodeKind kKind>
ChosenCounts super_counts(std::int64_t rows, std::int64_t columns) {
  const SuperLayout layout = super_layout(kKind);
  return {rows * layout.super_blocks(columns) * layout.supers,
          rows * layout.sub_blocks(columns) * layout.subs};
}

// Index of number `part` (of `parts`) of block `block` (of `blocks`) in a row.
std::int64_t super_place(std::int64_t row, std::int64_t block, std::int64_t blocks, int part,
                         int parts) {
  return ((row / kPanelRows * blocks + block) * parts + part) * kPanelRows + row % kPanelRows;
}

void put_super(const ChosenCodes& chosen, PackedWeight& packed) {
  const SuperLayout layout = super_layout(packed.scheme.kind);
  const std::int64_t padded =
      (packed.columns + kPaddedColumns - 1) / kPaddedColumns * kPaddedColumns;
  const std::int64_t supers = layout.super_blocks(packed.columns);
  const std::int64_t subs = layout.sub_blocks(packed.columns);
  std::size_t from = 0;
  for (std::int64_t row = 0; row < packed.rows; ++row) {
    for (std::int64_t i = 0; i < supers * layout.supers; ++i, ++from) {
      const std::uint16_t half = f32_to_f16(chosen.scales[from]);
      const std::int64_t at = super_place(row, i / layout.supers, layout.super_blocks(padded),
                                          static_cast<int>(i % layout.supers), layout.supers);
      std::memcpy(packed.scales.data() + at * 2, &half, sizeof half);
    }
  }
  from = 0;
  for (std::int64_t row = 0; row < packed.rows; ++row) {
    for (std::int64_t i = 0; i < subs * layout.subs; ++i, ++from) {
      const std::int64_t at = super_place(row, i / layout.subs, layout.sub_blocks(padded),
                                          static_cast<int>(i % layout.subs), layout.subs);
      packed.zeros[static_cast<std::size_t>(at)] = std::byte{chosen.zeros[from]};
    }
  }
}

SuperScale super_at(const WeightView& weight, const SuperLayout& layout, std::int64_t row,
                    std::int64_t column) {
  const auto number = [&](int part) {
    const std::int64_t at =
        super_place(row, column / kSuperColumns, layout.super_blocks(weight.padded_columns()), part,
                    layout.supers);
    std::uint16_t half = 0;
    std::memcpy(&half, static_cast<const std::byte*>(weight.scales) + at * 2, sizeof half);
    return f16_to_f32(half);
  };
  return {number(0), layout.supers > 1 ? number(1) : 0.0f};
}

SubScale sub_at(const WeightView& weight, const SuperLayout& layout, std::int64_t row,
                std::int64_t column) {
  const auto number = [&](int part) {
    const std::int64_t at =
        super_place(row, column / layout.sub_columns, layout.sub_blocks(weight.padded_columns()),
                    part, layout.subs);
    return sub_number(weight.scheme.kind, weight.zeros[at]);
  };
  return {number(0), layout.subs > 1 ? number(1) : 0};
}

void unpack_super(const WeightView& weight, std::int64_t row, std::int64_t first,
                  std::span<const std::uint8_t> codes, std::span<float> out) {
  const CodeKind kind = weight.scheme.kind;
  const SuperLayout layout = super_layout(kind);
  const SuperScale super = super_at(weight, layout, row, first);
  SubScale sub;
  for (std::size_t k = 0; k < out.size(); ++k) {
    const std::int64_t column = first + static_cast<std::int64_t>(k);
    if (k == 0 || column % layout.sub_columns == 0) sub = sub_at(weight, layout, row, column);
    out[k] = value_of(kind, super, sub, codes[k]);
  }
}

template <CodeKind kKind>
std::vector<float> dequantize_super(const ChosenCodes& chosen, std::int64_t rows,
                                    std::int64_t columns) {
  const SuperLayout layout = super_layout(kKind);
  std::vector<float> values(chosen.codes.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < columns; ++k) {
      const auto super = static_cast<std::size_t>(
          (row * layout.super_blocks(columns) + k / kSuperColumns) * layout.supers);
      const auto sub = static_cast<std::size_t>(
          (row * layout.sub_blocks(columns) + k / layout.sub_columns) * layout.subs);
      const auto at = static_cast<std::size_t>(row * columns + k);
      values[at] = value_of(
          kKind, {chosen.scales[super], layout.supers > 1 ? chosen.scales[super + 1] : 0.0f},
          {sub_number(kKind, chosen.zeros[sub]), layout.subs > 1 ? chosen.zeros[sub + 1] : 0},
          chosen.codes[at]);
    }
  }
  return values;
}

// --- nearest codes

// Finds the nearest codes of one superblock for the scales and minima in `part`.
void round_to_codes(CodeKind kind, const SuperLayout& layout, const SuperPart& part,
                    std::int16_t* codes) {
  const SuperScale super = {part.supers[0], layout.supers > 1 ? part.supers[1] : 0.0f};
  const bool signed_codes = kind == CodeKind::q6_k;
  const float low = signed_codes ? -kSuper6Zero : 0.0f;
  const float high = signed_codes ? kSuper6Zero - 1 : kind == CodeKind::q4_k ? 15.0f : 31.0f;
  for (std::size_t k = 0; k < part.x.size(); ++k) {
    const std::size_t sub =
        k / static_cast<std::size_t>(layout.sub_columns) * static_cast<std::size_t>(layout.subs);
    const float scale = super.d * static_cast<float>(sub_number(kind, part.subs[sub]));
    const float min = layout.subs > 1 ? super.dmin * static_cast<float>(part.subs[sub + 1]) : 0.0f;
    const float code =
        scale == 0 ? 0 : std::clamp(std::nearbyint((part.x[k] + min) / scale), low, high);
    codes[k] = static_cast<std::int16_t>(static_cast<int>(code) + (signed_codes ? kSuper6Zero : 0));
  }
}

template <CodeKind kKind>
ChosenCodes nearest_super(std::span<const float> values, std::int64_t rows, std::int64_t columns) {
  const SuperLayout layout = super_layout(kKind);
  const ChosenCounts count = super_counts<kKind>(rows, columns);
  ChosenCodes chosen;
  chosen.codes.resize(values.size());
  chosen.scales.resize(static_cast<std::size_t>(count.scales));
  chosen.zeros.resize(static_cast<std::size_t>(count.zeros));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < columns; k += kSuperColumns) {
      const std::int64_t at = row * columns + k;
      const std::int64_t block = row * layout.super_blocks(columns) + k / kSuperColumns;
      const SuperPart part = {
          values.subspan(static_cast<std::size_t>(at),
                         static_cast<std::size_t>(std::min(kSuperColumns, columns - k))),
          {},
          chosen.scales.data() + block * layout.supers,
          chosen.zeros.data() +
              (row * layout.sub_blocks(columns) + k / layout.sub_columns) * layout.subs};
      fit_super(kKind, part);
      round_to_codes(kKind, layout, part, chosen.codes.data() + at);
    }
  }
  return chosen;
}

// Sets random sub-scales (32 to 63), and minima for which the middle code has about value 0.
template <CodeKind kKind>
void randomize_super(const RandomNumbers& to) {
  const SuperLayout layout = super_layout(kKind);
  const std::int64_t columns = to.view.padded_columns();
  const float middle = kKind == CodeKind::q4_k ? 7.5f : 15.5f;
  const std::int64_t supers = layout.super_blocks(columns) * layout.supers * kPanelRows;
  for (std::int64_t i = 0; i < supers; ++i) {
    const bool is_min = i / kPanelRows % layout.supers == 1;
    const float d = to.is_pad(i % kPanelRows) ? 0 : to.scale / 64 * (is_min ? middle : 1.0f);
    const std::uint16_t half = f32_to_f16(d);
    std::memcpy(to.scales + (to.panel * supers + i) * 2, &half, sizeof half);
  }
  const std::int64_t subs = layout.sub_blocks(columns) * layout.subs * kPanelRows;
  for (std::int64_t i = 0; i < subs; ++i) {
    // Scale and minimum of a block use the same random number.
    const std::int64_t block = i / (kPanelRows * layout.subs) * kPanelRows + i % kPanelRows;
    to.zeros[to.panel * subs + i] = static_cast<std::byte>(32 + to.random(block, 3) % 32);
  }
}

template <CodeKind kKind>
CodeFormat super_format(std::string_view name, int bits, float deviation) {
  return {.kind = kKind,
          .name = name,
          .bits = bits,
          .group = 32,
          .zero = 0,
          .deviation = deviation,
          .planes = super_planes<kKind>,
          .counts = super_counts<kKind>,
          .nearest = nearest_super<kKind>,
          .put = put_super,
          .unpack = unpack_super,
          .dequantize = dequantize_super<kKind>,
          .randomize = randomize_super<kKind>};
}

}  // namespace

CodeFormat q4_k_format() { return super_format<CodeKind::q4_k>("q4_k", 4, 3.4f); }
CodeFormat q5_k_format() { return super_format<CodeKind::q5_k>("q5_k", 5, 6.9f); }
CodeFormat q6_k_format() { return super_format<CodeKind::q6_k>("q6_k", 6, 13.7f); }

}  // namespace leq
