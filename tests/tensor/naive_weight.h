// A second implementation of a stored weight's planes, from docs/leq-format.md in double, without
// code shared with src/: the reference for the packing tests. (A float quotient that is computed in
// double and then rounded to float is correctly rounded.)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "naive_half.h"

namespace leq::test {

struct NaivePlanes {
  std::vector<std::uint8_t> codes, scales, zeros, sums;
  double scale_mul = 1;
  std::vector<int> values;       // codes: int signed, uint as stored [rows][columns]
  std::vector<int> zero_of;      // zero points, 0 for int [rows][columns]
  std::vector<double> scale_of;  // [rows][columns]
};

struct NaiveCase {
  int bits = 8;   // 8, 4, 3 or 2
  int group = 0;  // 0: one scale per row; -1: one scale for all
  std::string act = "none";
  int rows = 0;
  int columns = 0;
  bool ranged = false;  // uint: one zero point per scale
};

inline void put(std::vector<std::uint8_t>& plane, std::size_t index, const void* value,
                std::size_t size) {
  std::memcpy(plane.data() + index * size, value, size);
}

inline NaivePlanes naive_pack(const NaiveCase& c, const std::vector<float>& x) {
  NaivePlanes out;
  const int padded_rows = (c.rows + 63) / 64 * 64;
  const int padded_columns = (c.columns + 127) / 128 * 128;
  const int span = c.group > 0 ? c.group : c.columns;  // columns per scale
  const int groups = (c.columns + span - 1) / span;
  std::vector<double> largest(static_cast<std::size_t>(c.rows * groups));
  std::vector<double> scale(largest.size());
  std::vector<double> lowest(largest.size());
  const double most = std::ldexp(1.0, c.bits) - 1;  // the largest code of uint
  const double half_codes = std::ldexp(1.0, c.bits - 1);
  const auto raw_scale = [&](double v) {
    return static_cast<double>(
        static_cast<float>(c.bits == 8 ? std::fabs(v) / 127.0 : v / -half_codes));
  };
  double of_all = 0;
  for (int r = 0; r < c.rows; ++r) {
    for (int g = 0; g < groups; ++g) {
      double v = 0, low = 0, high = 0;
      for (int k = g * span; k < std::min((g + 1) * span, c.columns); ++k) {
        const double value = x[static_cast<std::size_t>(r * c.columns + k)];
        if (std::fabs(value) > std::fabs(v)) v = value;
        low = std::min(low, value);
        high = std::max(high, value);
      }
      const auto i = static_cast<std::size_t>(r * groups + g);
      largest[i] = std::fabs(v);
      scale[i] = raw_scale(v);
      if (c.ranged) {
        largest[i] = static_cast<double>(static_cast<float>(high - low));
        lowest[i] = low;
        scale[i] = static_cast<double>(static_cast<float>(largest[i] / most));
      }
      of_all = std::max(of_all, std::fabs(v));
    }
  }
  if (c.group < 0) {
    std::fill(largest.begin(), largest.end(), of_all);
    std::fill(scale.begin(), scale.end(), raw_scale(of_all));
  }
  const double limit = static_cast<double>(1e-12f);
  if (c.group > 0) {
    double top = 0;
    for (std::size_t i = 0; i < scale.size(); ++i) {
      if (largest[i] >= limit) top = std::max(top, std::fabs(scale[i]));
    }
    if (top > 0) {
      int exponent = 0;
      std::frexp(top, &exponent);
      out.scale_mul = std::ldexp(1.0, exponent - 15);
    }
  }
  std::vector<bool> dead(scale.size());
  for (std::size_t i = 0; i < scale.size(); ++i) {
    const double half = c.group > 0 ? nearest_f16(scale[i] / out.scale_mul) : 1;
    dead[i] = largest[i] < limit || half == 0;
    if (c.group > 0) scale[i] = half * out.scale_mul;
    if (dead[i]) scale[i] = out.scale_mul;
  }
  // Computes zero points.
  std::vector<int> zero(scale.size());
  for (std::size_t i = 0; i < scale.size(); ++i) {
    if (!c.ranged || dead[i]) continue;
    const auto quotient = static_cast<double>(static_cast<float>(-lowest[i] / scale[i]));
    zero[i] = static_cast<int>(std::clamp(std::nearbyint(quotient), 0.0, most));
  }
  // Computes codes; those of padding columns represent 0.
  const auto padded =
      static_cast<std::size_t>(padded_rows) * static_cast<std::size_t>(padded_columns);
  std::vector<int> code(padded, 0);
  for (int r = 0; r < c.rows; ++r) {
    for (int k = 0; k < c.columns; ++k) {
      const auto i = static_cast<std::size_t>(r * groups + k / span);
      const double value = x[static_cast<std::size_t>(r * c.columns + k)];
      const double quotient = static_cast<double>(static_cast<float>(value / scale[i]));
      const double top = c.ranged ? most : half_codes - 1;
      const double bottom = c.ranged ? 0 : (c.bits == 8 ? -127 : -half_codes);
      const double nearest = std::nearbyint(quotient) + zero[i];
      const int q = dead[i] ? 0 : static_cast<int>(std::clamp(nearest, bottom, top));
      code[static_cast<std::size_t>(r) * static_cast<std::size_t>(padded_columns) +
           static_cast<std::size_t>(k)] = q;
      out.values.push_back(q);
      out.scale_of.push_back(scale[i]);
      out.zero_of.push_back(zero[i]);
    }
    const int end = c.group > 0 ? groups * span : padded_columns;  // one scale covers the row
    for (int k = c.columns; c.ranged && k < end; ++k) {
      const int g = c.group > 0 ? k / span : 0;
      code[static_cast<std::size_t>(r) * static_cast<std::size_t>(padded_columns) +
           static_cast<std::size_t>(k)] = zero[static_cast<std::size_t>(r * groups + g)];
    }
  }
  // Stores bits [from, from + bits) of every code in a plane of panels.
  const auto put_plane = [&](int bits, int from) {
    std::vector<std::uint8_t> plane(padded * static_cast<std::size_t>(bits) / 8);
    for (int r = 0; r < padded_rows; ++r) {
      for (int k = 0; k < padded_columns; ++k) {
        const int per_byte = 8 / bits;
        const auto byte = static_cast<std::size_t>(r / 64) * 64 *
                              static_cast<std::size_t>(padded_columns) *
                              static_cast<std::size_t>(bits) / 8 +
                          static_cast<std::size_t>((k / 4) / per_byte * 256 + (r % 64) * 4 + k % 4);
        const int shift = bits * ((k / 4) % per_byte);
        int stored = code[static_cast<std::size_t>(r) * static_cast<std::size_t>(padded_columns) +
                          static_cast<std::size_t>(k)];
        if (!c.ranged && c.bits < 8) stored += 1 << (c.bits - 1);
        const int part = ((stored & 255) >> from) & ((1 << bits) - 1);
        plane[byte] = static_cast<std::uint8_t>(plane[byte] | part << shift);
      }
    }
    out.codes.insert(out.codes.end(), plane.begin(), plane.end());
  };
  put_plane(c.bits == 3 ? 2 : c.bits, 0);
  if (c.bits == 3) put_plane(1, 2);
  // Stores scales, and sums of codes over h columns each.
  if (c.group > 0) {
    const int padded_groups = padded_columns / c.group;
    out.scales.resize(static_cast<std::size_t>(padded_rows * padded_groups) * 2);
    for (int r = 0; r < padded_rows; ++r) {
      for (int g = 0; g < padded_groups; ++g) {
        const bool real = r < c.rows && g < groups;
        const double s = real ? scale[static_cast<std::size_t>(r * groups + g)] : out.scale_mul;
        const std::uint16_t half = f16_pattern(s / out.scale_mul);
        put(out.scales, static_cast<std::size_t>((r / 64 * padded_groups + g) * 64 + r % 64), &half,
            2);
      }
    }
  } else {
    for (int r = 0; r < padded_rows; ++r) {
      const float s = r < c.rows ? static_cast<float>(scale[static_cast<std::size_t>(r)]) : 1.0f;
      out.scales.resize(out.scales.size() + 4);
      put(out.scales, static_cast<std::size_t>(r), &s, 4);
    }
  }
  if (c.ranged) {
    const int stored_groups = c.group > 0 ? padded_columns / c.group : 1;
    out.zeros.resize(static_cast<std::size_t>(padded_rows * stored_groups));
    for (int r = 0; r < c.rows; ++r) {
      for (int g = 0; g < groups; ++g) {
        out.zeros[static_cast<std::size_t>((r / 64 * stored_groups + g) * 64 + r % 64)] =
            static_cast<std::uint8_t>(zero[static_cast<std::size_t>(r * groups + g)]);
      }
    }
    return out;
  }
  if (c.bits != 8 || c.act == "none") return out;
  const bool per_row = c.group <= 0 && c.act == "row";
  int h = c.group > 0 ? c.group : padded_columns;
  if (c.act == "g128") h = std::min(h, 128);
  if (c.act == "g32") h = std::min(h, 32);
  const int spans = padded_columns / h;
  out.sums.resize(static_cast<std::size_t>(padded_rows * spans) * (per_row ? 4 : 2));
  for (int r = 0; r < padded_rows; ++r) {
    for (int g = 0; g < spans; ++g) {
      std::int32_t sum = 0;
      for (int k = g * h; k < (g + 1) * h; ++k) {
        sum += code[static_cast<std::size_t>(r) * static_cast<std::size_t>(padded_columns) +
                    static_cast<std::size_t>(k)];
      }
      const auto narrow = static_cast<std::int16_t>(sum);
      if (per_row) {
        put(out.sums, static_cast<std::size_t>(r), &sum, 4);
      } else {
        put(out.sums, static_cast<std::size_t>((r / 64 * spans + g) * 64 + r % 64), &narrow, 2);
      }
    }
  }
  return out;
}

}  // namespace leq::test
