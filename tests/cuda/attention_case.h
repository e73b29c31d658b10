// Attention over pages of random numbers: the batch, the pages in their device layout, and the
// expected result from plain loops, both in the order of docs/numerics.md and in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "base/float_math.h"
#include "base/half.h"
#include "bounded_scratch.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"
#include "device_memory.h"

namespace leq::LEQ_GPU {

struct AttentionCase {
  KvType keys = KvType::f16, values = KvType::f16;
  int heads = 4, kv_heads = 4, head_dim = 64, window = 0;
  struct Run {
    int first_position, rows;
  };
  std::vector<Run> runs;
  int loud = -1;                            // position of a key that is ten times as large
  std::int64_t most_records = kMaxRecords;  // of scratch: rows with more are split
  bool both_ways = false;                   // rows see later ones of their run

  friend void PrintTo(const AttentionCase& c, std::ostream* out) {
    *out << c.heads << '/' << c.kv_heads << " heads of " << c.head_dim << ", types "
         << static_cast<int>(c.keys) << '/' << static_cast<int>(c.values) << ", window " << c.window
         << (c.both_ways ? " both ways, " : ", ") << c.runs.size() << " runs";
  }
  int group() const { return heads / kv_heads; }
  int rows() const {
    int all = 0;
    for (const Run& run : runs) all += run.rows;
    return all;
  }
  // Returns the end of the longest sequence: its largest position + 1.
  int end() const {
    int last = 0;
    for (const Run& run : runs) last = std::max(last, run.first_position + run.rows);
    return last;
  }
  int width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// A range of rows in one of the case's runs.
struct AttentionPart {
  int run, first_row, rows;
};

// One side of the cache (keys or values): the numbers that its pages contain.
struct CacheSide {
  KvType type;
  std::vector<std::byte> bytes;
  std::int64_t page_bytes = 0;
  // [run][kv head][position][d]; int8: codes, whose scales and minima are [run][kv head][position].
  std::vector<float> numbers, scales, minima;
};

class AttentionData {
 public:
  explicit AttentionData(const AttentionCase& c)
      : c_(c), random_(11), length_(c.end()), rows_(c.rows()) {
    pages_of_run_ = (length_ + 63) / 64;
    page_count_ = pages_of_run_ * static_cast<int>(c.runs.size());
    table_.resize(static_cast<std::size_t>(page_count_));
    for (int i = 0; i < page_count_; ++i) table_[static_cast<std::size_t>(i)] = i;
    std::shuffle(table_.begin(), table_.end(), random_);
    make_side(c.keys, keys_);
    make_side(c.values, values_);
    qkv_.resize(static_cast<std::size_t>(rows_ * stride()));
    std::normal_distribution<float> normal(0, 0.4f);
    for (float& x : qkv_) x = normal(random_);
  }

  // Runs all rows in one batch.
  std::vector<float> run(bool exact) const {
    std::vector<AttentionPart> parts;
    for (std::size_t i = 0; i < c_.runs.size(); ++i) {
      parts.push_back({static_cast<int>(i), 0, c_.runs[i].rows});
    }
    return run(parts, exact);
  }

  // Runs a batch of selected rows.
  std::vector<float> run(const std::vector<AttentionPart>& parts, bool exact,
                         const OutputCodes& codes = {}) const {
    std::vector<AttentionRun> runs;
    std::vector<std::int32_t> row_runs;
    std::vector<float> rows;
    AttentionArguments a;
    for (const AttentionPart& part : parts) {
      const int first = c_.runs[static_cast<std::size_t>(part.run)].first_position + part.first_row;
      row_runs.insert(row_runs.end(), static_cast<std::size_t>(part.rows),
                      static_cast<std::int32_t>(runs.size()));
      runs.push_back(
          {static_cast<std::int32_t>(a.batch.tokens), part.rows, first, part.run * pages_of_run_});
      const auto from = qkv_.begin() + (row_of(part.run) + part.first_row) * stride();
      rows.insert(rows.end(), from, from + part.rows * stride());
      a.batch.tokens += part.rows;
      a.batch.longest_run = std::max<std::int64_t>(a.batch.longest_run, part.rows);
      a.batch.single_runs += part.rows == 1 ? 1 : 0;
      a.batch.end = std::max<std::int64_t>(a.batch.end, first + part.rows);
    }
    const DeviceArray<std::byte> keys(keys_.bytes), values(values_.bytes);
    const DeviceArray<float> qkv(rows);
    const DeviceArray<std::int32_t> table(table_), row_runs_there(row_runs);
    const DeviceArray<AttentionRun> runs_there(runs);
    const DeviceArray<float> out(static_cast<std::size_t>(a.batch.tokens * c_.heads * c_.head_dim));
    a.qkv = {qkv.data(), stride()};
    a.out = {out.data(), std::int64_t{c_.heads} * c_.head_dim};
    a.batch.runs = runs_there.data();
    a.batch.run_count = static_cast<int>(runs.size());
    a.batch.row_runs = row_runs_there.data();
    a.batch.pages = table.data();
    a.heads = {c_.heads, c_.kv_heads, c_.head_dim, c_.window, c_.heads / c_.kv_heads};
    a.heads.both_ways = c_.both_ways;
    a.keys = {keys.data(), keys_.page_bytes, c_.keys};
    a.values = {values.data(), values_.page_bytes, c_.values};
    a.exact = exact;
    const BoundedScratch scratch(a, c_.most_records);
    const DeviceArray<unsigned> tickets{std::vector<unsigned>(kTickets)};
    a.codes = codes;
    if (codes.tickets == nullptr) a.codes.tickets = tickets.data();
    EXPECT_TRUE(codes.tickets == nullptr || makes_codes(a));
    write_late({qkv.bytes(), keys.bytes(), values.bytes()});
    launch_attention(a, test_stream());
    scratch.expect_kept();
    EXPECT_EQ(tickets.host(), std::vector<unsigned>(kTickets));
    return out.host();
  }

  // The number of values in one output row.
  std::int64_t out_width() const { return std::int64_t{c_.heads} * c_.head_dim; }
  // Returns the batch's row at which a run begins.
  std::int64_t row_of(int run) const {
    std::int64_t row = 0;
    for (int i = 0; i < run; ++i) row += c_.runs[static_cast<std::size_t>(i)].rows;
    return row;
  }

  // Returns the result in the order of docs/numerics.md.
  std::vector<float> ordered() const {
    std::vector<float> out;
    for_each_head([&](std::size_t run, int position, int head, const float* q) {
      const auto values = ordered_head(run, position, head / c_.group(), q);
      out.insert(out.end(), values.begin(), values.end());
    });
    return out;
  }

  // The result of a softmax in double, and the mean of |v| with the same weights.
  struct Near {
    std::vector<double> out, size;
  };
  // Computes the result in double with unrounded q and values.
  Near in_double() const {
    return softmax([](double x) { return x; });
  }
  // Includes the roundings of tensor cores except those of the weights: q is rounded to f16.
  Near in_double_of_halves() const {
    return softmax([](double x) { return f16_to_f32(f32_to_f16(static_cast<float>(x))); });
  }

 private:
  template <class Round>
  Near softmax(Round round) const {
    Near near;
    for_each_head([&](std::size_t run, int position, int head, const float* q) {
      const int kv = head / c_.group(), first = first_seen(position), d = c_.head_dim;
      const int last = end_of_seen(run, position);
      std::vector<double> scores, o(static_cast<std::size_t>(d)), size(o.size());
      for (int j = first; j < last; ++j) scores.push_back(near_score(run, j, kv, q, round));
      const double largest = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (int j = first; j < last; ++j) {
        const double p = std::exp(scores[static_cast<std::size_t>(j - first)] - largest);
        total += p;
        for (std::size_t i = 0; i < o.size(); ++i) {
          const double v = near_value(run, j, kv, static_cast<int>(i));
          o[i] += p * v;
          const double apart = std::abs(v - near_middle(run, j, kv));
          size[i] += p * std::max(std::abs(v), apart);
        }
      }
      for (const double x : o) near.out.push_back(x / total);
      for (const double x : size) near.size.push_back(x / total);
    });
    return near;
  }
  template <class Round>
  double near_score(std::size_t run, int j, int kv, const float* q, Round round) const {
    if (c_.keys == KvType::int8) return score(run, j, kv, q);
    double sum = 0;
    for (int i = 0; i < c_.head_dim; ++i)
      sum += round(q[i]) * keys_.numbers[number_at(run, kv, j, i)];
    return sum;
  }
  double near_value(std::size_t run, int j, int kv, int i) const {
    const double u = values_.numbers[number_at(run, kv, j, i)];
    const std::size_t at = position_at(run, kv, j);
    if (c_.values != KvType::int8) return u;
    return u * values_.scales[at] + values_.minima[at];
  }

  // Returns the value of code 128, from which the error bound of int8 values is measured.
  double near_middle(std::size_t run, int j, int kv) const {
    if (c_.values != KvType::int8) return 0;
    const std::size_t at = position_at(run, kv, j);
    return 128.0 * values_.scales[at] + values_.minima[at];
  }

  int stride() const { return c_.width() + 32; }
  int first_seen(int position) const {
    return c_.window > 0 ? std::max(0, position + 1 - c_.window) : 0;
  }
  int end_of_seen(std::size_t run, int position) const {
    if (!c_.both_ways) return position + 1;
    const int end = c_.runs[run].first_position + c_.runs[run].rows;
    return c_.window > 0 ? std::min(end, position + c_.window) : end;
  }
  std::size_t position_at(std::size_t run, int kv, int j) const {
    return (run * static_cast<std::size_t>(c_.kv_heads) + static_cast<std::size_t>(kv)) *
               static_cast<std::size_t>(length_) +
           static_cast<std::size_t>(j);
  }
  std::size_t number_at(std::size_t run, int kv, int j, int i) const {
    return position_at(run, kv, j) * static_cast<std::size_t>(c_.head_dim) +
           static_cast<std::size_t>(i);
  }

  template <class Use>
  void for_each_head(Use use) const {
    std::size_t row = 0;
    for (std::size_t run = 0; run < c_.runs.size(); ++run) {
      for (int r = 0; r < c_.runs[run].rows; ++r, ++row) {
        for (int head = 0; head < c_.heads; ++head) {
          use(run, c_.runs[run].first_position + r, head,
              qkv_.data() + row * static_cast<std::size_t>(stride()) +
                  static_cast<std::size_t>(head * c_.head_dim));
        }
      }
    }
  }

  // Fills positions that no row reads, and padding, with bytes that are NaN as floats.
  void make_side(KvType type, CacheSide& side) {
    side.type = type;
    const int d = c_.head_dim, bytes = type == KvType::f32 ? 4 : type == KvType::f16 ? 2 : 1;
    const std::int64_t row_bytes = kv_row_bytes(d, bytes);
    side.page_bytes = c_.kv_heads * 64 * (row_bytes + (type == KvType::int8 ? 4 : 0));
    side.bytes.resize(static_cast<std::size_t>(side.page_bytes * page_count_), std::byte{0xff});
    const std::size_t positions = position_at(c_.runs.size() - 1, c_.kv_heads - 1, length_ - 1) + 1;
    side.numbers.resize(positions * static_cast<std::size_t>(d));
    side.scales.resize(positions);
    side.minima.resize(positions);
    for (std::size_t run = 0; run < c_.runs.size(); ++run) {
      const int last = c_.runs[run].first_position + c_.runs[run].rows;
      for (int kv = 0; kv < c_.kv_heads; ++kv) {
        for (int j = first_seen(c_.runs[run].first_position); j < last; ++j) {
          fill_position(side, run, kv, j, row_bytes);
        }
      }
    }
  }

  void fill_position(CacheSide& side, std::size_t run, int kv, int j, std::int64_t row_bytes) {
    std::normal_distribution<float> normal;
    const float size = &side == &keys_ && j == c_.loud ? 10.0f : 1.0f;
    const int page =
        table_[run * static_cast<std::size_t>(pages_of_run_) + static_cast<std::size_t>(j / 64)];
    std::byte* const base = side.bytes.data() + page * side.page_bytes;
    std::byte* const row = base + (kv * 64 + j % 64) * row_bytes;
    const std::size_t at = position_at(run, kv, j);
    if (side.type == KvType::int8) {
      auto* ends = reinterpret_cast<std::uint16_t*>(base + c_.kv_heads * 64 * row_bytes);
      const std::uint16_t s = f32_to_f16(size * (0.01f + 0.005f * std::abs(normal(random_))));
      const std::uint16_t m = f32_to_f16(size * (-1.5f + 0.2f * normal(random_)));
      ends[kv * 64 + j % 64] = s;
      ends[(c_.kv_heads + kv) * 64 + j % 64] = m;
      side.scales[at] = f16_to_f32(s);
      side.minima[at] = f16_to_f32(m);
    }
    for (int i = 0; i < c_.head_dim; ++i) {
      float& number = side.numbers[number_at(run, kv, j, i)];
      if (side.type == KvType::int8) {
        const auto code = static_cast<std::uint8_t>(random_() % 256);
        number = code;
        std::memcpy(row + i, &code, 1);
      } else if (side.type == KvType::f16) {
        const std::uint16_t half = f32_to_f16(size * normal(random_));
        number = f16_to_f32(half);
        std::memcpy(row + i * 2, &half, 2);
      } else {
        number = size * normal(random_);
        std::memcpy(row + i * 4, &number, 4);
      }
    }
  }

  float score(std::size_t run, int j, int kv, const float* q) const {
    const int d = c_.head_dim;
    if (c_.keys != KvType::int8) {
      float sum = 0;
      for (int i = 0; i < d; ++i) {
        sum = std::fma(q[i], keys_.numbers[number_at(run, kv, j, i)], sum);
      }
      return sum;
    }
    float largest = 0;
    for (int i = 0; i < d; ++i) largest = std::max(largest, std::abs(q[i]));
    int products = 0, codes = 0;
    for (int i = 0; i < d; ++i) {
      const int code = static_cast<int>(std::nearbyint(q[i] * (127.0f / largest)));
      codes += code;
      products += code * static_cast<int>(keys_.numbers[number_at(run, kv, j, i)]);
    }
    const std::size_t at = position_at(run, kv, j);
    const float low = keys_.minima[at] * static_cast<float>(codes);
    return largest / 127.0f * std::fma(keys_.scales[at], static_cast<float>(products), low);
  }

  static float lane_total(const float (&lanes)[16]) {
    float sums[16];
    std::copy_n(lanes, 16, sums);
    for (int width = 8; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) sums[i] = sums[i] + sums[i + width];
    }
    return sums[0];
  }

  // Combines spans of 512 absolute positions in ascending order.
  std::vector<float> ordered_head(std::size_t run, int position, int kv, const float* q) const {
    const auto d = static_cast<std::size_t>(c_.head_dim);
    const bool coded = c_.values == KvType::int8;
    std::vector<float> out(d);
    float largest = 0, total = 0;
    bool started = false;
    const int end = end_of_seen(run, position);
    for (int first = first_seen(position); first < end; first = first / 512 * 512 + 512) {
      const int last = std::min(first / 512 * 512 + 512, end);
      std::vector<float> o(d);
      float m = -std::numeric_limits<float>::infinity(), lanes[16] = {}, shifts[16] = {};
      for (int j = first; j < last; ++j) m = std::max(m, score(run, j, kv, q));
      for (int j = first; j < last; ++j) {
        const float p = leq_exp(score(run, j, kv, q) - m);
        const std::size_t at = position_at(run, kv, j);
        lanes[j % 16] += p;
        shifts[j % 16] = std::fma(p, values_.minima[at], shifts[j % 16]);
        const float w = coded ? p * values_.scales[at] : p;
        for (std::size_t i = 0; i < d; ++i) {
          o[i] = std::fma(w, values_.numbers[number_at(run, kv, j, static_cast<int>(i))], o[i]);
        }
      }
      const float l = lane_total(lanes), z = coded ? lane_total(shifts) : 0.0f;
      const float joint = started ? std::max(largest, m) : m;
      const float a = started ? leq_exp(largest - joint) : 0.0f, b = leq_exp(m - joint);
      for (std::size_t i = 0; i < d; ++i) {
        out[i] = started ? std::fma(o[i] + z, b, out[i] * a) : o[i] + z;
      }
      total = started ? std::fma(l, b, total * a) : l;
      largest = joint;
      started = true;
    }
    for (float& x : out) x = x * (1.0f / total);
    return out;
  }

  AttentionCase c_;
  std::mt19937 random_;
  int length_ = 0, rows_ = 0, pages_of_run_ = 0, page_count_ = 0;
  std::vector<std::int32_t> table_;
  CacheSide keys_, values_;
  std::vector<float> qkv_;
};

}  // namespace leq::LEQ_GPU
