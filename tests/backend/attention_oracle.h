// Two reference implementations of attention. NaiveAttention is the textbook formula in double,
// computed from the inputs. SpanAttention follows the order of docs/numerics.md in scalar f32 and
// reads the pages in the layout of docs/kv-cache.md; results of backends must equal its bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/attention_run.h"
#include "base/float_math.h"
#include "base/half.h"

namespace leq::test {

// Stores q [H][d], k [H_kv][d] and v [H_kv][d] of each position in double, after norm and rotation.
class NaiveAttention {
 public:
  NaiveAttention(const AttentionCase& c, int sequence, std::int64_t length) : c_(c) {
    const auto q_gain = head_gain(c.head_dim, 1), k_gain = head_gain(c.head_dim, 2);
    for (std::int64_t t = 0; t < length; ++t) {
      const auto input = qkv_row(c, sequence, t);
      std::vector<double> row(input.begin(), input.end());
      for (int h = 0; h < c.heads + c.kv_heads; ++h) {
        double* head = row.data() + h * c.head_dim;
        if (c.head_norms) norm(head, h < c.heads ? q_gain : k_gain);
        if (c.rotary) turn(head, t);
      }
      rows_.push_back(std::move(row));
    }
  }

  // The output of head h at position t.
  std::vector<double> output(std::int64_t t, int h) const {
    const int d = c_.head_dim, kv = h / (c_.heads / c_.kv_heads);
    const std::int64_t first = c_.window > 0 ? std::max<std::int64_t>(0, t + 1 - c_.window) : 0;
    std::vector<double> weights;
    for (std::int64_t j = first; j <= t; ++j) {
      double dot = 0;
      for (int i = 0; i < d; ++i) dot += at(t, h, i) * at(j, c_.heads + kv, i);
      if (c_.query_period > 0) {
        dot *= 1.0 + 0.3 * std::log(1.0 + std::floor(static_cast<double>(t) /
                                                     static_cast<double>(c_.query_period)));
      }
      weights.push_back(dot / std::sqrt(static_cast<double>(d)));
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& w : weights) total += w = std::exp(w - largest);
    std::vector<double> out(static_cast<std::size_t>(d));
    for (std::int64_t j = first; j <= t; ++j) {
      for (int i = 0; i < d; ++i) {
        out[static_cast<std::size_t>(i)] += weights[static_cast<std::size_t>(j - first)] / total *
                                            at(j, c_.heads + c_.kv_heads + kv, i);
      }
    }
    return out;
  }

 private:
  double at(std::int64_t t, int head, int i) const {
    return rows_[static_cast<std::size_t>(t)][static_cast<std::size_t>(head * c_.head_dim + i)];
  }
  void norm(double* head, const std::vector<float>& gain) const {
    double squares = 0;
    for (int i = 0; i < c_.head_dim; ++i) squares += head[i] * head[i] / c_.head_dim;
    for (int i = 0; i < c_.head_dim; ++i) {
      head[i] = head[i] / std::sqrt(squares + 1e-6) *
                static_cast<double>(gain[static_cast<std::size_t>(i)]);
    }
  }
  void turn(double* head, std::int64_t t) const {
    const int half = c_.head_dim / 2;
    for (int i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t) * std::pow(10000.0, -2.0 * i / c_.head_dim);
      const double x0 = head[i], x1 = head[i + half];
      head[i] = x0 * std::cos(angle) - x1 * std::sin(angle);
      head[i + half] = x1 * std::cos(angle) + x0 * std::sin(angle);
    }
  }

  AttentionCase c_;
  std::vector<std::vector<double>> rows_;
};

class SpanAttention {
 public:
  SpanAttention(const AttentionCase& c, const AttentionRun& run, int sequence)
      : c_(c), run_(run), sequence_(sequence) {}

  std::vector<float> output(std::int64_t t, int h) const {
    const int d = c_.head_dim;
    const std::int64_t first = c_.window > 0 ? std::max<std::int64_t>(0, t + 1 - c_.window) : 0;
    const float* q = run_.queries(sequence_).data() + (t * c_.heads + h) * d;
    std::vector<float> total(static_cast<std::size_t>(d));
    float m_all = 0, l_all = 0;
    bool any = false;
    for (std::int64_t base = first / 512 * 512; base <= t; base += 512) {
      const std::int64_t begin = std::max(first, base), end = std::min(t + 1, base + 512);
      float m = 0, l = 0;
      const auto o = span(q, h / (c_.heads / c_.kv_heads), begin, end, m, l);
      if (!any) {
        m_all = m, l_all = l, total = o, any = true;
        continue;
      }
      const float joint = std::max(m_all, m);
      const float a = leq_exp(m_all - joint), b = leq_exp(m - joint);
      l_all = std::fma(l, b, l_all * a);
      for (std::size_t i = 0; i < o.size(); ++i) total[i] = std::fma(o[i], b, total[i] * a);
      m_all = joint;
    }
    const float r = 1.0f / l_all;
    for (float& x : total) x = x * r;
    return total;
  }

 private:
  std::vector<float> span(const float* q, int kv_head, std::int64_t begin, std::int64_t end,
                          float& m, float& l) const {
    std::vector<float> p;
    for (std::int64_t j = begin; j < end; ++j) p.push_back(score(q, kv_head, j));
    m = *std::max_element(p.begin(), p.end());
    float lanes[16] = {}, low[16] = {};
    for (std::int64_t j = begin; j < end; ++j) {
      float& x = p[static_cast<std::size_t>(j - begin)];
      x = leq_exp(x - m);
      lanes[j % 16] += x;
    }
    l = total(lanes);
    const int d = c_.head_dim;
    std::vector<float> o(static_cast<std::size_t>(d));
    for (std::int64_t j = begin; j < end; ++j) {
      float weight = p[static_cast<std::size_t>(j - begin)];
      if (c_.value_type == KvType::int8) {
        low[j % 16] = std::fma(weight, minimum(false, j, kv_head), low[j % 16]);
        weight = weight * scale(false, j, kv_head);
      }
      for (int i = 0; i < d; ++i) {
        float& x = o[static_cast<std::size_t>(i)];
        x = std::fma(weight, value(j, kv_head, i), x);
      }
    }
    if (c_.value_type == KvType::int8) {
      const float z = total(low);
      for (float& x : o) x = x + z;
    }
    return o;
  }

  float score(const float* q, int kv_head, std::int64_t j) const {
    const int d = c_.head_dim;
    if (c_.key_type != KvType::int8) {
      float sum = 0;
      for (int i = 0; i < d; ++i) sum = std::fma(q[i], float_key(j, kv_head, i), sum);
      return sum;
    }
    float a = 0;
    for (int i = 0; i < d; ++i) a = std::max(a, std::abs(q[i]));
    const float s_q = a / 127.0f, inv = 127.0f / a;
    int dot = 0, sum = 0;
    for (int i = 0; i < d; ++i) {
      const int code = static_cast<int>(std::clamp(std::nearbyint(q[i] * inv), -127.0f, 127.0f));
      dot += code * key_code(j, kv_head, i);
      sum += code;
    }
    return s_q * std::fma(scale(true, j, kv_head), static_cast<float>(dot),
                          minimum(true, j, kv_head) * static_cast<float>(sum));
  }

  static float total(const float* lanes) {
    float sums[16];
    std::copy_n(lanes, 16, sums);
    for (int w = 8; w >= 1; w /= 2) {
      for (int i = 0; i < w; ++i) sums[i] += sums[i + w];
    }
    return sums[0];
  }

  const std::byte* page(bool keys, std::int64_t j) const {
    const KvLayer& kv = run_.layer();
    const auto index =
        static_cast<std::size_t>(run_.pages(sequence_)[static_cast<std::size_t>(j / 64)]);
    return keys ? kv.keys + index * kv.key_page_bytes : kv.values + index * kv.value_page_bytes;
  }
  template <class Number>
  Number number(bool keys, std::int64_t j, std::int64_t index) const {
    return reinterpret_cast<const Number*>(page(keys, j))[index];
  }
  float float_key(std::int64_t j, int head, int i) const {
    const std::int64_t slot = j % 64, d = c_.head_dim;
    const std::int64_t index = ((head * 4 + slot / 16) * d + i) * 16 + slot % 16;
    return c_.key_type == KvType::f32 ? number<float>(true, j, index)
                                      : f16_to_f32(number<std::uint16_t>(true, j, index));
  }
  int key_code(std::int64_t j, int head, int i) const {
    const std::int64_t slot = j % 64, quads = (c_.head_dim + 3) / 4;
    return number<std::uint8_t>(
        true, j, (((head * 4 + slot / 16) * quads + i / 4) * 16 + slot % 16) * 4 + i % 4);
  }
  float value(std::int64_t j, int head, int i) const {
    const std::int64_t index = (head * 64 + j % 64) * std::int64_t{c_.head_dim} + i;
    if (c_.value_type == KvType::f32) return number<float>(false, j, index);
    if (c_.value_type == KvType::f16) return f16_to_f32(number<std::uint16_t>(false, j, index));
    return number<std::uint8_t>(false, j, index);
  }
  std::int64_t codes(bool keys) const {
    const int d = keys ? (c_.head_dim + 3) / 4 * 4 : c_.head_dim;
    return std::int64_t{c_.kv_heads} * 64 * d;
  }
  float scale(bool keys, std::int64_t j, int head) const {
    return f16_to_f32(number<std::uint16_t>(keys, j, codes(keys) / 2 + head * 64 + j % 64));
  }
  float minimum(bool keys, std::int64_t j, int head) const {
    return f16_to_f32(
        number<std::uint16_t>(keys, j, codes(keys) / 2 + (c_.kv_heads + head) * 64 + j % 64));
  }

  AttentionCase c_;
  const AttentionRun& run_;
  int sequence_;
};

}  // namespace leq::test
