// A random integer matmul: weights in the device's layout, tokens, and the expected outputs from
// plain loops over the codes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "base/float_math.h"
#include "base/half.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"
#include "device_memory.h"

namespace leq::LEQ_GPU {

struct IntCase {
  int bits = 8;
  bool is_uint = false;
  int weight_group = 0;  // 0: the whole row
  int token_group = 0;
  int tokens = 1;
  int columns = 128;
  std::vector<int> rows = {64};  // rows of each segment
  Finish finish = Finish::store;
  bool extreme = false;    // all codes +-127, or the limits of their range; some rows have one sign
  bool has_table = false;  // codes of 4 bits select a number (table_number)

  bool has_zeros() const { return is_uint; }
  bool is_signed() const { return bits == 8 && !is_uint; }
  int least_code() const { return is_signed() ? -127 : 0; }
  int largest_code() const { return is_signed() ? 127 : (1 << bits) - 1; }
  int padded() const { return static_cast<int>(padded_columns(columns)); }
  int group() const {
    if (weight_group == 0) return token_group;
    return token_group == 0 ? weight_group : std::min(weight_group, token_group);
  }
  int sum_columns() const { return group() == 0 ? padded() : group(); }
  int outputs() const {
    int count = 0;
    for (const int n : rows) count += n;
    return count;
  }
};

// 16 numbers of both signs, none of them twice.
constexpr int table_number(int code) { return (code * 83 + 40) % 255 - 127; }

// Applies a finish to y, with the functions of base/float_math.h.
inline float finished_value(Finish finish, float y, float up, float before) {
  if (finish == Finish::add) return before + y;
  if (finish == Finish::gelu) return gelu_new(y);
  if (finish == Finish::silu) return leq::silu(y);
  if (finish == Finish::geglu) return gelu_new(y) * up;
  if (finish == Finish::clamped_swiglu) return clamped_swiglu(y, up);
  return finish == Finish::swiglu ? leq::silu(y) * up : y;
}

inline void PrintTo(const IntCase& c, std::ostream* out) {
  *out << (c.has_table ? "table"
           : c.is_uint ? "uint"
                       : "int")
       << c.bits << " g" << c.weight_group << " x g" << c.token_group << ", " << c.tokens
       << " tokens, " << c.columns << " -> " << c.outputs();
}

// One segment's weights, on the host and on the device.
struct IntSegmentData {
  std::vector<int> codes;  // [N][K]
  std::vector<std::uint8_t> zeros;
  std::vector<std::uint16_t> group_scales;
  std::vector<float> row_scales;
  std::vector<float> bias;
  std::unique_ptr<DeviceArray<std::uint8_t>> codes_there, zeros_there;
  std::unique_ptr<DeviceArray<std::uint16_t>> group_scales_there;
  std::unique_ptr<DeviceArray<float>> row_scales_there, bias_there;
};

class IntMatmulData {
 public:
  explicit IntMatmulData(const IntCase& c, unsigned seed = 99)
      : c_(c), random_(seed + static_cast<unsigned>(c.columns)) {
    for (const int rows : c.rows) segments_.push_back(make_segment(rows));
    make_tokens();
    out_start_.resize(static_cast<std::size_t>(c.tokens * out_stride()));
    for (float& value : out_start_) value = uniform(-1, 1);
    out_ = std::make_unique<DeviceArray<float>>(out_start_);
  }

  IntMatmul arguments() const {
    IntMatmul a;
    for (std::size_t i = 0; i < segments_.size(); ++i) a.segments[i] = segment(i);
    a.segment_count = static_cast<int>(segments_.size());
    a.tokens = c_.tokens;
    a.columns = c_.columns;
    a.x.codes = codes_there_->data();
    a.x.scales = scales_there_->data();
    a.x.sums = c_.is_signed() ? nullptr : sums_there_->data();
    a.x.code_stride = code_stride();
    a.x.scale_stride = scale_stride();
    a.x.sum_stride = sum_stride();
    a.x.group = c_.token_group;
    a.x.sum_group = c_.sum_columns();
    a.finish = c_.finish;
    a.out = {out_->data(), out_stride()};
    return a;
  }

  // Replaces this problem's tokens by those of `other`.
  void take_tokens(const IntMatmulData& other) {
    codes_ = other.codes_;
    scales_ = other.scales_;
    sums_ = other.sums_;
  }

  using Launch = std::function<void(const IntMatmul& a, rt::Stream& stream)>;

  std::vector<float> run(const Launch& launch = launch_int_matmul) const {
    write_inputs_late();
    launch(arguments(), test_stream());
    return out_->host();
  }

  // Returns the sum over one group of columns, with the zero point subtracted.
  std::int64_t group_sum(int group, int token, std::size_t segment, int row) const {
    const IntSegmentData& s = segments_[segment];
    const int first = group * c_.sum_columns();
    const int last = std::min(first + c_.sum_columns(), c_.columns);
    std::int64_t sum = 0;
    for (int k = first; k < last; ++k) {
      sum += number(s, row, k) * codes_[static_cast<std::size_t>(token * code_stride() + k)];
    }
    return sum;
  }

  // Returns y in the order of docs/numerics.md, before the finish.
  float value(int token, std::size_t segment, int row) const {
    const IntSegmentData& s = segments_[segment];
    const auto token_scale = [&](int k) {
      const int index = c_.token_group == 0 ? 0 : k / c_.token_group;
      return scales_[static_cast<std::size_t>(token * scale_stride() + index)];
    };
    const float row_scale =
        c_.weight_group == 0 ? s.row_scales[static_cast<std::size_t>(row)] : 1.0f;
    const float last = (c_.token_group == 0 ? token_scale(0) : 1.0f) * row_scale;
    float sum = 0;
    if (c_.group() == 0) {
      sum = static_cast<float>(group_sum(0, token, segment, row));
    } else {
      for (int k = 0; k < c_.padded(); k += c_.group()) {
        const float scale = (c_.weight_group == 0 ? 1.0f : group_scale(s, row, k)) *
                            (c_.token_group == 0 ? 1.0f : token_scale(k));
        const auto group = static_cast<float>(group_sum(k / c_.group(), token, segment, row));
        sum = std::fma(group, scale, sum);
      }
    }
    return std::fma(sum, last, s.bias[static_cast<std::size_t>(row)]);
  }

  CodeSegment segment(std::size_t i) const {
    const IntSegmentData& s = segments_[i];
    CodeSegment segment;
    segment.weight.codes = s.codes_there->data();
    segment.weight.bits = c_.bits;
    segment.weight.zero = c_.is_signed() || c_.is_uint || c_.has_table ? 0 : 1 << (c_.bits - 1);
    segment.weight.has_table = c_.has_table;
    for (int code = 0; code < 16; ++code) {
      segment.weight.table[code / 4] |= (static_cast<std::uint32_t>(table_number(code)) & 255u)
                                        << code % 4 * 8;
    }
    segment.weight.zeros = c_.has_zeros() ? s.zeros_there->data() : nullptr;
    segment.weight.group = c_.weight_group;
    segment.weight.row_scales = s.row_scales_there->data();
    segment.weight.group_scales = s.group_scales_there->data();
    segment.weight.scale_mul = kScaleMul;
    segment.bias = s.bias_there->data();
    segment.rows = c_.rows[i];
    return segment;
  }

  // Returns float(code - zero) * scale, which is the weight for f32 inputs.
  float weight(std::size_t segment, int row, int k) const {
    const IntSegmentData& s = segments_[segment];
    const float scale =
        c_.weight_group == 0 ? s.row_scales[static_cast<std::size_t>(row)] : group_scale(s, row, k);
    return static_cast<float>(number(s, row, k)) * scale;
  }
  float bias(std::size_t segment, int row) const {
    return segments_[segment].bias[static_cast<std::size_t>(row)];
  }

  // Returns the initial value of `out`, to which Finish::add adds.
  float before(int token, int column) const {
    return out_start_[static_cast<std::size_t>(token * out_stride() + column)];
  }
  std::int64_t out_stride() const { return float_stride(c_.outputs()) + 32; }
  int sum_stride() const { return c_.padded() / c_.sum_columns(); }

 private:
  float uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random_);
  }
  int code(int least, int largest, int row = 3) {
    if (c_.extreme && row % 4 == 0) return largest;
    if (c_.extreme && row % 4 == 1) return least;
    if (c_.extreme) return random_() % 2 == 0 ? least : largest;
    return std::uniform_int_distribution<int>(least, largest)(random_);
  }
  std::size_t at(int row, int k) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(c_.columns) +
           static_cast<std::size_t>(k);
  }
  std::size_t group_at(int row, int k) const {
    if (c_.weight_group == 0) return static_cast<std::size_t>(row);
    return static_cast<std::size_t>(row * (c_.padded() / c_.weight_group) + k / c_.weight_group);
  }
  int zero(const IntSegmentData& s, int row, int k) const {
    if (c_.has_zeros()) return s.zeros[group_at(row, k)];
    return c_.is_signed() ? 0 : 1 << (c_.bits - 1);
  }
  int number(const IntSegmentData& s, int row, int k) const {
    const int code = s.codes[at(row, k)];
    return c_.has_table ? table_number(code) : code - zero(s, row, k);
  }
  float group_scale(const IntSegmentData& s, int row, int k) const {
    return f16_to_f32(s.group_scales[group_at(row, k)]) * kScaleMul;
  }
  std::int64_t code_stride() const { return c_.padded() + 128; }
  std::int64_t scale_stride() const {
    return c_.token_group == 0 ? 1 : c_.padded() / c_.token_group;
  }

  IntSegmentData make_segment(int rows) {
    IntSegmentData s;
    const auto padded = static_cast<std::size_t>(padded_rows(rows));
    s.codes.resize(static_cast<std::size_t>(rows) * static_cast<std::size_t>(c_.columns));
    for (std::size_t i = 0; i < s.codes.size(); ++i) {
      const int row = static_cast<int>(i) / c_.columns;
      s.codes[i] = code(c_.least_code(), c_.largest_code(), row);
    }
    const std::size_t scales =
        c_.weight_group == 0 ? padded
                             : padded * static_cast<std::size_t>(c_.padded() / c_.weight_group);
    s.zeros.resize(scales);
    for (auto& value : s.zeros) value = static_cast<std::uint8_t>(code(0, (1 << c_.bits) - 1));
    s.row_scales.resize(padded, 1);
    for (float& value : s.row_scales) value = uniform(0.001f, 0.002f);
    s.group_scales.resize(scales);
    for (auto& value : s.group_scales) value = f32_to_f16(uniform(-2, 2));
    s.bias.resize(static_cast<std::size_t>(rows));
    for (float& value : s.bias) value = uniform(-1, 1);
    s.codes_there = std::make_unique<DeviceArray<std::uint8_t>>(
        c_.bits == 3 ? pack_three_bits(rows, s) : pack(rows, s));
    s.zeros_there = std::make_unique<DeviceArray<std::uint8_t>>(s.zeros);
    s.group_scales_there = std::make_unique<DeviceArray<std::uint16_t>>(s.group_scales);
    s.row_scales_there = std::make_unique<DeviceArray<float>>(s.row_scales);
    s.bias_there = std::make_unique<DeviceArray<float>>(s.bias);
    return s;
  }

  std::vector<std::uint8_t> pack(int rows, const IntSegmentData& s) const {
    const auto stride = static_cast<std::size_t>(c_.padded() * c_.bits / 8);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(padded_rows(rows)) * stride);
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < c_.columns; ++k) {
        const int code = s.codes[at(row, k)] & ((1 << c_.bits) - 1);
        const std::size_t byte = static_cast<std::size_t>(row) * stride +
                                 static_cast<std::size_t>(code_byte(c_.bits, k));
        bytes[byte] = static_cast<std::uint8_t>(bytes[byte] | code << code_shift(c_.bits, k));
      }
    }
    return bytes;
  }
  // Codes after the last column are 4, which represents 0, as in a file.
  std::vector<std::uint8_t> pack_three_bits(int rows, const IntSegmentData& s) const {
    const auto stride = static_cast<std::size_t>(c_.padded() * 3 / 8);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(padded_rows(rows)) * stride);
    for (int row = 0; row < rows; ++row) {
      for (int word = 0; word < c_.padded() / 32; ++word) {
        const int first = word / 4 * 128 + word % 4 * 4;
        std::uint32_t quads[8] = {};
        for (int i = 0; i < 32; ++i) {
          const int k = first + i / 4 * 16 + i % 4;
          const int number = k < c_.columns ? s.codes[at(row, k)] - 4 : 0;
          quads[i / 4] |= (static_cast<std::uint32_t>(number) & 7u) << (8 * (i % 4) + 5);
        }
        const ThreeBitWords words = three_bit_words(quads);
        for (int chunk = 0; chunk < 3; ++chunk) {
          std::memcpy(&bytes[static_cast<std::size_t>(row) * stride +
                             static_cast<std::size_t>(three_bit_byte(first) + 16 * chunk)],
                      &words.of[chunk], 4);
        }
      }
    }
    return bytes;
  }

  void make_tokens() {
    codes_.resize(static_cast<std::size_t>(c_.tokens * code_stride()));
    scales_.resize(static_cast<std::size_t>(c_.tokens * scale_stride()));
    sums_.resize(static_cast<std::size_t>(c_.tokens * sum_stride()));
    for (float& value : scales_) value = uniform(0.005f, 0.015f);
    for (int t = 0; t < c_.tokens; ++t) {
      for (int k = 0; k < c_.columns; ++k) {
        const int value = code(-127, 127, t);
        codes_[static_cast<std::size_t>(t * code_stride() + k)] = static_cast<std::int8_t>(value);
        sums_[static_cast<std::size_t>(t * sum_stride() + k / c_.sum_columns())] += value;
      }
    }
    codes_there_ = std::make_unique<DeviceArray<std::int8_t>>(codes_);
    scales_there_ = std::make_unique<DeviceArray<float>>(scales_);
    sums_there_ = std::make_unique<DeviceArray<std::int32_t>>(sums_);
  }

  void write_inputs_late() const {
    write_late(
        {codes_there_->bytes(), scales_there_->bytes(), sums_there_->bytes(), out_->bytes()});
  }

  static constexpr float kScaleMul = 0x1p-9f;

  IntCase c_;
  std::mt19937 random_;
  std::vector<IntSegmentData> segments_;
  std::vector<std::int8_t> codes_;
  std::vector<float> scales_;
  std::vector<std::int32_t> sums_;
  std::unique_ptr<DeviceArray<std::int8_t>> codes_there_;
  std::unique_ptr<DeviceArray<float>> scales_there_;
  std::unique_ptr<DeviceArray<std::int32_t>> sums_there_;
  std::vector<float> out_start_;
  std::unique_ptr<DeviceArray<float>> out_;
};

inline void expect_values(const IntCase& c, IntMatmulData::Launch launch = launch_int_matmul) {
  const IntMatmulData data(c);
  const auto found = data.run(launch);
  const bool paired = is_gated(c.finish);
  for (int t = 0; t < c.tokens; ++t) {
    int column = 0;
    const auto at = [&] { return static_cast<std::size_t>(t * data.out_stride() + column); };
    for (std::size_t s = 0; s < (paired ? 1 : c.rows.size()); ++s) {
      for (int row = 0; row < c.rows[s]; ++row, ++column) {
        const float up = paired ? data.value(t, 1, row) : 0.0f;
        ASSERT_EQ(found[at()],
                  finished_value(c.finish, data.value(t, s, row), up, data.before(t, column)))
            << "token " << t << ", column " << column;
      }
    }
    // Checks that columns after the last output were not written.
    for (; column < data.out_stride(); ++column) ASSERT_EQ(found[at()], data.before(t, column));
  }
}

}  // namespace leq::LEQ_GPU
