// Random weights and inputs with their exact products, for the matmul tests. Packing is implemented
// independently from the documented layout; sums have 64 bits, f32 steps the documented order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "base/half.h"
#include "base/random.h"
#include "table_numbers.h"
#include "tensor/quant_scheme.h"

namespace leq::test {

inline std::int64_t up_to(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Bytes aligned to a cache line, as in a file.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::int64_t bytes) : lines_(static_cast<std::size_t>(bytes / 64 + 1)) {}
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(lines_.data());
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  std::vector<Line> lines_;
};

// The number of columns per input scale; 0: the whole row.
inline std::int64_t columns_of_scale(ActKind act) {
  return act == ActKind::g128 ? 128 : act == ActKind::g32 ? 32 : 0;
}

// The kind of codes and inputs in a case.
enum class Fill { random, extreme };

struct TestWeight {
  TestWeight(const std::string& scheme_text, ActKind act_kind, std::int64_t rows,
             std::int64_t columns, Random& random, Fill fill = Fill::random)
      : scheme(*parse_scheme(scheme_text)),
        act(act_kind),
        n(rows),
        k(columns),
        group(scheme.scaling == Scaling::group ? scheme.group : 0) {
    numbers.resize(static_cast<std::size_t>(n * k));
    if (scheme.is_float()) {
      fill_floats(random);
    } else {
      fill_codes(random, fill);
    }
  }

  WeightView view() {
    WeightView view;
    view.scheme = scheme;
    view.act = act;
    view.rows = n;
    view.columns = k;
    view.codes = codes.as<const std::byte>();
    view.scales = scales.as<const std::byte>();
    view.scale_mul = scale_mul;
    view.zeros = zeros.as<const std::uint8_t>();
    view.sums = sums.as<const std::byte>();
    return view;
  }

  float number(std::int64_t row, std::int64_t column) const {
    return numbers[static_cast<std::size_t>(row * k + column)];
  }
  float scale(std::int64_t row, std::int64_t column) const {
    return row_scales[static_cast<std::size_t>(row * (group == 0 ? 1 : up_to(k, group) / group) +
                                               (group == 0 ? 0 : column / group))];
  }

  QuantScheme scheme;
  ActKind act;
  std::int64_t n, k, group;
  std::vector<float> numbers;     // [n][k] codes, or the widened floats
  std::vector<float> row_scales;  // [n] or [n][groups]
  float scale_mul = 0x1p-5f;

 private:
  void fill_floats(Random& random) {
    codes = AlignedBytes(n * k * 4);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      float value = random.normal();
      if (scheme.kind == CodeKind::f32) {
        codes.as<float>()[i] = value;
      } else if (scheme.kind == CodeKind::f16) {
        codes.as<std::uint16_t>()[i] = f32_to_f16(value);
        value = f16_to_f32(f32_to_f16(value));
      } else {
        codes.as<std::uint16_t>()[i] = f32_to_bf16(value);
        value = bf16_to_f32(f32_to_bf16(value));
      }
      numbers[i] = value;
    }
  }

  bool ranged() const { return scheme.kind == CodeKind::uint_; }
  // The offset added to a code before it is stored.
  int stored_offset() const {
    return ranged() || scheme.has_table() || scheme.bits == 8 ? 0 : 1 << (scheme.bits - 1);
  }

  // For extreme products, each code is as far from its zero point as possible; for 8 bits and uint,
  // the direction alternates by row. leq never writes -128, but a file may contain it.
  static bool points_down(std::int64_t row) { return row % 2 == 1; }
  int extreme_code(std::int64_t row) const {
    if (ranged()) return points_down(row) ? 0 : (1 << scheme.bits) - 1;
    if (scheme.has_table()) return scheme_name(scheme) == "iq4_nl" ? 0 : 15;
    if (scheme.bits == 8) return points_down(row) ? -128 : 127;
    return -stored_offset();
  }

  int random_code(Random& random) const {
    const int levels = scheme.bits == 8 && !ranged() ? 255 : 1 << scheme.bits;
    const int low =
        ranged() || scheme.has_table() ? 0 : (scheme.bits == 8 ? -127 : -stored_offset());
    return static_cast<int>(random.below(static_cast<std::uint32_t>(levels))) + low;
  }

  // Stores the zero points [rows][groups] in the layout of the planes.
  void put_zeros(Random& random, Fill fill, std::int64_t np, std::int64_t kp) {
    const std::int64_t groups = group == 0 ? 1 : kp / group;
    zeros = AlignedBytes(np * groups);
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t g = 0; g < groups; ++g) {
        const int most = (1 << scheme.bits) - 1;
        const int zero =
            fill == Fill::extreme
                ? (points_down(row) ? most : 0)
                : static_cast<int>(random.below(static_cast<std::uint32_t>(1 << scheme.bits)));
        zeros.as<std::uint8_t>()[row / 64 * groups * 64 + g * 64 + row % 64] =
            static_cast<std::uint8_t>(zero);
      }
    }
  }
  int zero(std::int64_t row, std::int64_t column, std::int64_t kp) {
    if (!ranged()) return 0;
    const std::int64_t groups = group == 0 ? 1 : kp / group;
    const std::int64_t g = group == 0 ? 0 : column / group;
    return zeros.as<std::uint8_t>()[row / 64 * groups * 64 + g * 64 + row % 64];
  }

  // Codes of padding rows and columns get random bits, because their inputs are 0 and the outputs
  // of padding rows are ignored. Padding of int8 is 0, because the code sums include padding.
  void fill_codes(Random& random, Fill fill) {
    const std::int64_t np = up_to(n, 64);
    const std::int64_t kp = up_to(k, 128);
    codes = AlignedBytes(np * kp * scheme.bits / 8);
    if (scheme.bits < 8) {
      for (std::int64_t i = 0; i < np * kp * scheme.bits / 8; ++i) {
        codes.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(random.below(256));
      }
    }
    if (ranged()) put_zeros(random, fill, np, kp);
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t column = 0; column < k; ++column) {
        const int code = fill == Fill::extreme ? extreme_code(row) : random_code(random);
        const int number = table_number(scheme, code) - zero(row, column, kp);
        numbers[static_cast<std::size_t>(row * k + column)] = static_cast<float>(number);
        put_code(row, column, code + stored_offset(), np, kp);
      }
    }
    put_scales(random, np, kp);
    if (scheme.bits == 8 && !ranged()) put_sums(np, kp);
  }

  void put_code(std::int64_t row, std::int64_t column, int stored, std::int64_t np,
                std::int64_t kp) {
    if (scheme.bits != 3) return put_bits(row, column, stored, scheme.bits, 0, kp);
    put_bits(row, column, stored & 3, 2, 0, kp);
    put_bits(row, column, stored >> 2, 1, np * kp * 2 / 8, kp);
  }

  // Writes a value to a plane of `bits` bits that begins at byte `start`.
  void put_bits(std::int64_t row, std::int64_t column, int value, int bits, std::int64_t start,
                std::int64_t kp) {
    const std::int64_t per = 8 / bits;
    std::uint8_t& byte =
        codes.as<std::uint8_t>()[start + row / 64 * (64 * kp * bits / 8) + column / 4 / per * 256 +
                                 row % 64 * 4 + column % 4];
    const int shift = bits * static_cast<int>(column / 4 % per);
    const int mask = ((1 << bits) - 1) << shift;
    byte = static_cast<std::uint8_t>((byte & ~mask) | ((value << shift) & mask));
  }

  void put_scales(Random& random, std::int64_t np, std::int64_t kp) {
    if (group == 0) {
      scales = AlignedBytes(np * 4);
      for (std::int64_t row = 0; row < np; ++row) scales.as<float>()[row] = 1.0f;
      for (std::int64_t row = 0; row < n; ++row) {
        row_scales.push_back(0.001f + 0.01f * random.uniform());
        scales.as<float>()[row] = row_scales.back();
      }
      return;
    }
    const std::int64_t groups = kp / group;
    scales = AlignedBytes(np * groups * 2);
    for (std::int64_t i = 0; i < np * groups; ++i) scales.as<std::uint16_t>()[i] = 0x3c00;
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t g = 0; g < up_to(k, group) / group; ++g) {
        const auto half =
            static_cast<std::uint16_t>((scheme.bits < 8 && !ranged() ? random.below(2) << 15 : 0) |
                                       (0x2400 + random.below(0x1000)));
        const std::int64_t at = row / 64 * groups * 64 + g * 64 + row % 64;
        if (scheme_name(scheme) == "nvfp4") {
          const auto byte = static_cast<std::uint8_t>(random.below(127));
          const float number = byte < 8
                                   ? std::ldexp(static_cast<float>(byte), -9)
                                   : std::ldexp(static_cast<float>(8 + byte % 8), byte / 8 - 10);
          scale_mul = 0.0173f * 256;
          row_scales.push_back(number * 0.0173f);
          scales.as<std::uint8_t>()[at] = byte;
          continue;
        }
        row_scales.push_back(f16_to_f32(half) * scale_mul);
        scales.as<std::uint16_t>()[at] = half;
      }
    }
  }

  // Sums of 8-bit codes cover the whole row (i32) or the finer of the two groupings (i16).
  void put_sums(std::int64_t np, std::int64_t kp) {
    const std::int64_t of_token = columns_of_scale(act) == 0 ? kp : columns_of_scale(act);
    const bool whole = group == 0 && columns_of_scale(act) == 0;
    const std::int64_t span =
        whole ? kp : (group == 0 ? of_token : std::min({group, of_token, std::int64_t{128}}));
    const std::int64_t groups = kp / span;
    sums = AlignedBytes(np * groups * 4);
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t g = 0; g < groups; ++g) {
        int sum = 0;
        for (std::int64_t c = g * span; c < std::min(k, (g + 1) * span); ++c) {
          sum += static_cast<int>(number(row, c));
        }
        const std::int64_t at = row / 64 * groups * 64 + g * 64 + row % 64;
        if (whole) {
          sums.as<std::int32_t>()[row] = sum;
        } else {
          sums.as<std::int16_t>()[at] = static_cast<std::int16_t>(sum);
        }
      }
    }
  }

  AlignedBytes codes{0}, scales{0}, zeros{0}, sums{0};
};

// Inputs [tokens][k] as codes with scales, or as f32.
struct TestInputs {
  TestInputs(ActKind act_kind, std::int64_t token_count, std::int64_t columns, Random& random,
             Fill fill = Fill::random)
      : act(act_kind), tokens(token_count), k(columns) {
    for (std::int64_t i = 0; i < tokens * k; ++i) {
      const int code = fill == Fill::extreme ? -127 : static_cast<int>(random.below(255)) - 127;
      numbers.push_back(act == ActKind::none ? random.normal() : static_cast<float>(code));
    }
    for (std::int64_t i = 0; i < tokens * groups(); ++i) {
      scales.push_back(0.005f + 0.05f * random.uniform());
    }
  }

  std::int64_t group() const { return columns_of_scale(act); }
  std::int64_t groups() const { return group() > 0 ? up_to(k, 128) / group() : 1; }
  float number(std::int64_t token, std::int64_t column) const {
    return numbers[static_cast<std::size_t>(token * k + column)];
  }
  float scale(std::int64_t token, std::int64_t column) const {
    return scales[static_cast<std::size_t>(token * groups() +
                                           (group() > 0 ? column / group() : 0))];
  }

  // Tokens [first, first + count) in the backend's format; unused memory is poisoned.
  Rows rows(Backend& backend, const RowsFormat& format, std::int64_t first,
            std::int64_t count) const {
    Rows rows = backend.allocate_rows(count, k, format);
    for (std::int64_t t = 0; t < count; ++t) {
      if (act == ActKind::none) {
        float* to = rows.values + t * rows.value_stride;
        std::fill(to, to + rows.value_stride, std::numeric_limits<float>::quiet_NaN());
        for (std::int64_t c = 0; c < k; ++c) to[c] = number(first + t, c);
        continue;
      }
      const int offset = format.offset_codes ? 128 : 0;
      std::uint8_t* to = rows.codes + t * rows.code_stride;
      std::fill(to, to + rows.code_stride, std::uint8_t{201});
      std::fill(to, to + up_to(k, 128), static_cast<std::uint8_t>(offset));
      for (std::int64_t c = 0; c < k; ++c) {
        to[c] = static_cast<std::uint8_t>(static_cast<int>(number(first + t, c)) + offset);
        rows.scales[t * rows.scale_stride + (group() > 0 ? c / group() : 0)] = scale(first + t, c);
        if (format.sum_group > 0) {
          rows.sums[t * rows.sum_stride + c / format.sum_group] +=
              static_cast<int>(number(first + t, c));
        }
      }
    }
    return rows;
  }

  ActKind act;
  std::int64_t tokens, k;
  std::vector<float> numbers;
  std::vector<float> scales;
};

// Returns y of one token and output, with f32 steps in the documented order. `bias` may be null.
inline float expected_int(const TestWeight& w, std::int64_t row, const TestInputs& x,
                          std::int64_t token, const float* bias) {
  const bool by_token = x.group() > 0;
  std::int64_t span = w.group == 0 ? w.k : w.group;
  if (by_token) span = std::min(span, x.group());
  const bool whole = w.group == 0 && !by_token;
  float f = 0.0f;
  std::int64_t acc = 0;
  for (std::int64_t first = 0; first < w.k; first += span) {
    acc = 0;
    for (std::int64_t c = first; c < std::min(w.k, first + span); ++c) {
      acc += static_cast<std::int64_t>(w.number(row, c)) *
             static_cast<std::int64_t>(x.number(token, c));
    }
    const auto sum = static_cast<float>(acc);
    if (w.group != 0 && by_token) f = std::fma(sum, w.scale(row, first) * x.scale(token, first), f);
    if (w.group != 0 && !by_token) f = std::fma(sum, w.scale(row, first), f);
    if (w.group == 0 && by_token) f = std::fma(sum, x.scale(token, first), f);
  }
  if (whole) {
    const float scale = x.scale(token, 0) * w.scale(row, 0);
    const auto sum = static_cast<float>(acc);
    return bias == nullptr ? sum * scale : std::fma(sum, scale, *bias);
  }
  if (w.group != 0 && by_token) return bias == nullptr ? f : f + *bias;
  const float scale = w.group != 0 ? x.scale(token, 0) : w.scale(row, 0);
  return bias == nullptr ? f * scale : std::fma(f, scale, *bias);
}

// Adds 16 lanes pairwise at distances 8, 4, 2, 1. Integer weights are used as scale * code.
inline float expected_float(const TestWeight& w, std::int64_t row, const TestInputs& x,
                            std::int64_t token, const float* bias) {
  float lanes[16] = {};
  for (std::int64_t c = 0; c < up_to(w.k, 16); ++c) {
    float weight = 0.0f;
    if (c < w.k) weight = w.number(row, c) * (w.scheme.is_float() ? 1.0f : w.scale(row, c));
    lanes[c % 16] = std::fma(weight, c < w.k ? x.number(token, c) : 0.0f, lanes[c % 16]);
  }
  float eight[8], four[4];
  for (int i = 0; i < 8; ++i) eight[i] = lanes[i] + lanes[i + 8];
  for (int i = 0; i < 4; ++i) four[i] = eight[i] + eight[i + 4];
  const float sum = (four[0] + four[2]) + (four[1] + four[3]);
  return bias == nullptr ? sum : sum + *bias;
}

inline float expected(const TestWeight& w, std::int64_t row, const TestInputs& x,
                      std::int64_t token, const float* bias) {
  return x.act == ActKind::none ? expected_float(w, row, x, token, bias)
                                : expected_int(w, row, x, token, bias);
}

// A linear of one to three weights, with its expected products.
struct TestLinear {
  TestLinear(const std::string& scheme, ActKind act, const std::vector<std::int64_t>& outputs,
             std::int64_t k, bool with_bias, Random& random, Fill fill = Fill::random) {
    for (const std::int64_t n : outputs) {
      weights.push_back(std::make_unique<TestWeight>(scheme, act, n, k, random, fill));
      biases.emplace_back();
      for (std::int64_t i = 0; with_bias && i < n; ++i) biases.back().push_back(random.normal());
      LinearSegment& segment = linear.segments.emplace_back();
      segment.weight = weights.back()->view();
      segment.bias = with_bias ? biases.back().data() : nullptr;
      linear.outputs += n;
    }
    linear.inputs = k;
    linear.act = act;
    linear.name = "layers.5.test";
  }

  // Returns the expected outputs [tokens][outputs].
  std::vector<float> products(const TestInputs& x) const {
    std::vector<float> y;
    for (std::int64_t t = 0; t < x.tokens; ++t) {
      for (std::size_t s = 0; s < weights.size(); ++s) {
        for (std::int64_t n = 0; n < weights[s]->n; ++n) {
          const float* bias = biases[s].empty() ? nullptr : &biases[s][static_cast<std::size_t>(n)];
          y.push_back(expected(*weights[s], n, x, t, bias));
        }
      }
    }
    return y;
  }

  std::vector<std::unique_ptr<TestWeight>> weights;
  std::vector<std::vector<float>> biases;
  Linear linear;
};

}  // namespace leq::test
