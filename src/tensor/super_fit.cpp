#include "tensor/super_fit.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/half.h"
#include "tensor/super_blocks.h"

namespace leq {
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
