#include "tensor/super_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "tensor/code_formats.h"

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
  // Calls store(index of a chosen number, its place) for each number of each block.
  const auto place = [&](std::int64_t blocks, std::int64_t padded_blocks, int parts, auto store) {
    for (std::int64_t row = 0; row < packed.rows; ++row) {
      for (std::int64_t i = 0; i < blocks * parts; ++i) {
        store(static_cast<std::size_t>(row * blocks * parts + i),
              super_place(row, i / parts, padded_blocks, static_cast<int>(i % parts), parts));
      }
    }
  };
  place(layout.super_blocks(packed.columns), layout.super_blocks(padded), layout.supers,
        [&](std::size_t from, std::int64_t at) {
          const std::uint16_t half = f32_to_f16(chosen.scales[from]);
          std::memcpy(packed.scales.data() + at * 2, &half, sizeof half);
        });
  place(layout.sub_blocks(packed.columns), layout.sub_blocks(padded), layout.subs,
        [&](std::size_t from, std::int64_t at) {
          packed.zeros[static_cast<std::size_t>(at)] = std::byte{chosen.zeros[from]};
        });
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

namespace {

constexpr int kCandidates = 9;       // scales to try on each side of the plain one
constexpr float kLevelStep = 0.1f;   // step between scales, in levels of the range
constexpr float kMaxUnsigned = 255;  // limit of a byte
constexpr float kMaxSigned = 127;

float held(float x) { return f16_to_f32(f32_to_f16(x)); }

float rounded(float x, float low, float high) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to nearest even
  return ((x < low ? low : x > high ? high : x) + kRounder) - kRounder;
}

float multiple(float part, float whole, float low, float high) {
  return whole == 0 ? 0 : rounded(part / whole, low, high);
}

// Columns of a sub-block, which share a sub-scale.
struct Block {
  std::span<const float> x, w;  // w may be empty
  float low_code = 0, high_code = 0;

  float weight(std::size_t i) const { return w.empty() ? 1.0f : w[i]; }
};

// A line of values: scale * code - min.
struct Line {
  float scale = 0, min = 0;
};

// The sums needed for a regression of x on codes. Four lanes shorten the dependency chains.
struct Sums {
  float w = 0, wu = 0, wuu = 0, wx = 0, wux = 0, wxx = 0;
};

Sums sums_of(const Block& block, const Line& line) {
  constexpr std::size_t kLanes = 8;
  std::array<std::array<float, kLanes>, 6> lanes = {};
  const float inverse = line.scale == 0 ? 0 : 1 / line.scale;
  const auto add = [&](std::size_t i, std::size_t lane) {
    const float u = rounded((block.x[i] + line.min) * inverse, block.low_code, block.high_code);
    const float w = block.weight(i), x = block.x[i];
    lanes[0][lane] += w;
    lanes[1][lane] += w * u;
    lanes[2][lane] += w * u * u;
    lanes[3][lane] += w * x;
    lanes[4][lane] += w * u * x;
    lanes[5][lane] += w * x * x;
  };
  std::size_t i = 0;
  for (; i + kLanes <= block.x.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (; i < block.x.size(); ++i) add(i, 0);
  const auto total = [&](std::size_t of) {
    float sum = 0;
    for (const float lane : lanes[of]) sum += lane;
    return sum;
  };
  return {total(0), total(1), total(2), total(3), total(4), total(5)};
}

// Sum of w (scale u - min - x)^2 for codes u, from the sums of a block.
float error_of(const Sums& s, const Line& line) {
  return line.scale * line.scale * s.wuu + line.min * line.min * s.w + s.wxx -
         2 * line.scale * line.min * s.wu - 2 * line.scale * s.wux + 2 * line.min * s.wx;
}

Line through_zero(const Sums& s) { return {s.wuu > 0 ? s.wux / s.wuu : 0, 0}; }

// Minima are never negative, so that every sub-block can represent 0. If (nearly) all codes are
// equal, the scale of `start` is kept.
Line regression(const Sums& s, const Line& start) {
  constexpr float kLeast = 1e-5f;  // relative; smaller differences are rounding errors
  const float determinant = s.w * s.wuu - s.wu * s.wu;
  if (determinant <= kLeast * s.w * s.wuu) {
    return {start.scale, s.w > 0 ? std::max(0.0f, (start.scale * s.wu - s.wx) / s.w) : start.min};
  }
  const Line line = {(s.w * s.wux - s.wu * s.wx) / determinant,
                     (s.wu * s.wux - s.wuu * s.wx) / determinant};
  return line.min < 0 || line.scale <= 0 ? through_zero(s) : line;
}

struct Best {
  Line line;
  float error = 0;
  bool found = false;

  void offer(const Line& line_of, float error_of_it) {
    if (found && error_of_it >= error) return;
    *this = {line_of, error_of_it, true};
  }
};

// Fits a line to the codes that `start` gives, and offers this line to `best`.
void try_line(const Block& block, const Line& start, bool with_min, Best& best) {
  const Sums sums = sums_of(block, start);
  const Line line = with_min ? regression(sums, start) : through_zero(sums);
  best.offer(line, error_of(sums, line));
}

// Rounds codes by the best line and fits a line to them, twice.
Line refine(const Block& block, Best best, bool with_min) {
  for (int i = 0; i < 2; ++i) try_line(block, Line(best.line), with_min, best);
  return best.line;
}

Line fit_with_min(const Block& block) {
  const auto [low, high] = std::minmax_element(block.x.begin(), block.x.end());
  const float min = std::max(0.0f, -*low);
  const float range = std::max(0.0f, *high) + min;
  if (range < kSmallestAbsmax) return {};
  Best best;
  for (int i = -kCandidates; i <= kCandidates; ++i) {
    const float levels = block.high_code + kLevelStep * static_cast<float>(i);
    try_line(block, {range / levels, min}, true, best);
  }
  return refine(block, best, true);
}

Line fit_symmetric(const Block& block) {
  const float extreme = *std::ranges::max_element(
      block.x, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  if (std::fabs(extreme) < kSmallestAbsmax) return {};
  Best best;
  for (int i = -kCandidates; i <= kCandidates; ++i) {
    const float shift = kLevelStep * static_cast<float>(i);
    try_line(block, {extreme / (block.low_code + shift), 0}, false, best);
    try_line(block, {extreme / (block.high_code + shift), 0}, false, best);
  }
  return refine(block, best, false);
}

std::size_t block_count(const SuperPart& part, std::size_t columns) {
  return (part.x.size() + columns - 1) / columns;
}

Block block_of(const SuperPart& part, std::size_t index, std::size_t columns) {
  const std::size_t first = index * columns;
  const std::size_t count = std::min(columns, part.x.size() - first);
  return {part.x.subspan(first, count),
          part.weights.empty() ? part.weights : part.weights.subspan(first, count)};
}

void fit_lines(const SuperPart& part, float max_code) {
  constexpr std::size_t kColumns = 32;
  std::array<Line, kSuperColumns / kColumns> lines;
  float largest_scale = 0, largest_min = 0;
  for (std::size_t g = 0; g < block_count(part, kColumns); ++g) {
    Block block = block_of(part, g, kColumns);
    block.high_code = max_code;
    lines[g] = fit_with_min(block);
    largest_scale = std::max(largest_scale, lines[g].scale);
    largest_min = std::max(largest_min, lines[g].min);
  }
  part.supers[0] = held(largest_scale / kMaxUnsigned);
  part.supers[1] = held(largest_min / kMaxUnsigned);
  for (std::size_t g = 0; g < block_count(part, kColumns); ++g) {
    Block block = block_of(part, g, kColumns);
    block.high_code = max_code;
    const float scale = multiple(lines[g].scale, part.supers[0], 0, kMaxUnsigned);
    lines[g].scale = part.supers[0] * scale;
    const Sums s = sums_of(block, lines[g]);
    const float min = s.w > 0 ? (lines[g].scale * s.wu - s.wx) / s.w : lines[g].min;
    part.subs[2 * g] = static_cast<std::uint8_t>(scale);
    part.subs[2 * g + 1] =
        static_cast<std::uint8_t>(multiple(min, part.supers[1], 0, kMaxUnsigned));
  }
}

void fit_scales(const SuperPart& part) {
  constexpr std::size_t kColumns = 16;
  std::array<Line, kSuperColumns / kColumns> lines;
  float largest = 0;
  for (std::size_t g = 0; g < block_count(part, kColumns); ++g) {
    Block block = block_of(part, g, kColumns);
    block.low_code = -kSuper6Zero;
    block.high_code = kSuper6Zero - 1;
    lines[g] = fit_symmetric(block);
    if (std::fabs(lines[g].scale) > std::fabs(largest)) largest = lines[g].scale;
  }
  part.supers[0] = held(largest / -kMaxSigned);
  for (std::size_t g = 0; g < block_count(part, kColumns); ++g) {
    part.subs[g] = static_cast<std::uint8_t>(
        static_cast<int>(multiple(lines[g].scale, part.supers[0], -kMaxSigned, kMaxSigned)));
  }
}

}  // namespace

void fit_super(CodeKind kind, const SuperPart& part) {
  if (kind == CodeKind::q6_k) return fit_scales(part);
  fit_lines(part, kind == CodeKind::q4_k ? 15 : 31);
}

}  // namespace leq
