// Attention over packed codes and their f16 copies in scalar f32, in the order of docs/numerics.md;
// it reads pages in the layout of docs/kv-cache.md, and backends must equal its bits. Also provides
// the same keys and values as plain numbers, for attention in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "backend/attention_run.h"
#include "base/float_math.h"
#include "base/half.h"

namespace leq::test {

class PackedAttention {
 public:
  PackedAttention(const AttentionCase& c, const AttentionRun& run, int sequence)
      : c_(c), run_(run), sequence_(sequence) {
    keys_ = side(c.key_type, true);
    values_ = side(c.value_type, false);
  }

  std::vector<float> output(std::int64_t t, int h) const {
    const int d = c_.head_dim;
    const std::int64_t first = c_.window > 0 ? std::max<std::int64_t>(0, t + 1 - c_.window) : 0;
    const float* q = run_.queries(sequence_).data() + (t * c_.heads + h) * d;
    std::vector<float> total;
    float m_all = 0, l_all = 0;
    for (std::int64_t base = first / 512 * 512; base <= t; base += 512) {
      const std::int64_t begin = std::max(first, base), end = std::min(t + 1, base + 512);
      float m = 0, l = 0;
      const auto o = span(t, q, h / (c_.heads / c_.kv_heads), begin, end, m, l);
      if (total.empty()) {
        m_all = m, l_all = l, total = o;
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
    if (values_.rotated) inverse_rope(total);
    return total;
  }

  // Returns the output of head h at position t in double, from the values that codes represent.
  std::vector<double> output_in_double(std::int64_t t, int h) const {
    const int d = c_.head_dim, kv = h / (c_.heads / c_.kv_heads);
    const std::int64_t first = c_.window > 0 ? std::max<std::int64_t>(0, t + 1 - c_.window) : 0;
    const float* q = run_.queries(sequence_).data() + (t * c_.heads + h) * d;
    std::vector<double> p, out(static_cast<std::size_t>(d));
    for (std::int64_t j = first; j <= t; ++j) {
      double dot = 0;
      for (int i = 0; i < d; ++i) dot += double{q[i]} * key(t, j, kv, i);
      p.push_back(dot);
    }
    const double largest = *std::max_element(p.begin(), p.end());
    double total = 0;
    for (double& x : p) total += x = std::exp(x - largest);
    for (std::int64_t j = first; j <= t; ++j) {
      for (int i = 0; i < d; ++i) {
        out[static_cast<std::size_t>(i)] +=
            p[static_cast<std::size_t>(j - first)] / total * number(values_, t, j, kv, i);
      }
    }
    return out;
  }

  // The stored value of dimension i of a key or value at position j, as the query at t reads it.
  double key(std::int64_t t, std::int64_t j, int head, int i) const {
    return number(keys_, t, j, head, i);
  }
  double value(std::int64_t t, std::int64_t j, int head, int i) const {
    return number(values_, t, j, head, i);
  }
  double copied_key(std::int64_t j, int head, int i) const { return copy(keys_, j, head, i); }
  double copied_value(std::int64_t j, int head, int i) const { return copy(values_, j, head, i); }
  bool reads_code(std::int64_t t, std::int64_t j) const { return coded(keys_, t, j); }
  float key_scale(std::int64_t j, int head, int i) const { return ends(keys_, j, head, i, false); }
  float value_scale(std::int64_t j, int head, int i) const {
    return ends(values_, j, head, i, true);
  }

 private:
  struct Side {
    bool keys = true, packed = false, blocked = false, rotated = false;
    int bits = 16, block = 0, group = 0;
    std::int64_t head_bytes = 0, end_count = 0;
  };

  Side side(KvType type, bool keys) const {
    Side s;
    const int d = c_.head_dim;
    s.keys = keys;
    const std::string name(kv_scheme(type).name);
    if (name == "f16") return s;
    s.packed = true;
    s.blocked = name.starts_with("simq");
    s.rotated = name == "int4";
    s.bits = s.blocked ? name[4] - '0' : 4;
    s.block = 32;
    s.group = name.starts_with("int4") || s.bits == 8 ? d : s.bits == 4 ? 64 : 32;
    s.head_bytes = keys ? 8 * d * s.bits : 64 * ((d + 15) / 16) * 2 * s.bits;
    const int groups = (d + s.group - 1) / s.group;
    s.end_count = keys && s.blocked ? 64 / s.block * d : 64 * groups;
    return s;
  }

  bool coded(const Side& s, std::int64_t t, std::int64_t j) const {
    if (!s.packed) return false;
    if (!s.blocked) return true;
    const KvResidual z = c_.residual();
    const std::int64_t end = j / z.block * z.block + z.block;
    return j >= z.sinks && end <= t + 1 - z.recent;
  }

  std::vector<float> span(std::int64_t t, const float* q, int kv_head, std::int64_t begin,
                          std::int64_t end, float& m, float& l) const {
    std::vector<float> p;
    for (std::int64_t j = begin; j < end; ++j) p.push_back(score(t, q, kv_head, j));
    m = *std::max_element(p.begin(), p.end());
    float lanes[16] = {};
    for (std::int64_t j = begin; j < end; ++j) {
      float& x = p[static_cast<std::size_t>(j - begin)];
      x = leq_exp(x - m);
      lanes[j % 16] += x;
    }
    l = lane_sum(lanes);
    std::vector<float> o;
    for (int i = 0; i < c_.head_dim; ++i) {
      float sum = 0, low[16] = {};
      for (std::int64_t j = begin; j < end; ++j) {
        const float weight = p[static_cast<std::size_t>(j - begin)];
        if (!coded(values_, t, j)) {
          sum = std::fma(weight, stored_float(values_, j, kv_head, i), sum);
          continue;
        }
        low[j % 16] = std::fma(weight, ends(values_, j, kv_head, i, true, true), low[j % 16]);
        sum = std::fma(weight * ends(values_, j, kv_head, i, true),
                       static_cast<float>(code(values_, j, kv_head, i)), sum);
      }
      o.push_back(values_.packed ? sum + lane_sum(low) : sum);
    }
    return o;
  }

  float score(std::int64_t t, const float* q, int kv_head, std::int64_t j) const {
    const int d = c_.head_dim;
    float f = 0;
    if (!coded(keys_, t, j)) {
      for (int i = 0; i < d; ++i) f = std::fma(q[i], stored_float(keys_, j, kv_head, i), f);
      return f;
    }
    if (keys_.blocked) {
      for (int i = 0; i < d; ++i) f = std::fma(q[i], ends(keys_, j, kv_head, i, false, true), f);
      for (int i = 0; i < d; ++i) {
        const float folded = q[i] * ends(keys_, j, kv_head, i, false);
        f = std::fma(folded, static_cast<float>(code(keys_, j, kv_head, i)), f);
      }
      return f;
    }
    float lanes[16] = {};
    for (int i = 0; i < d; ++i) lanes[i % 16] += q[i];
    const float sum = lane_sum(lanes);
    for (int i = 0; i < d; ++i) {
      f = std::fma(q[i], static_cast<float>(code(keys_, j, kv_head, i)), f);
    }
    return std::fma(ends(keys_, j, kv_head, i_any, true), f,
                    ends(keys_, j, kv_head, i_any, true, true) * sum);
  }

  double number(const Side& s, std::int64_t t, std::int64_t j, int head, int i) const {
    if (!coded(s, t, j)) return double{stored_float(s, j, head, i)};
    const bool by_token = !s.keys || !s.blocked;
    return double{ends(s, j, head, i, by_token)} * code(s, j, head, i) +
           double{ends(s, j, head, i, by_token, true)};
  }
  double copy(const Side& s, std::int64_t j, int head, int i) const {
    return double{stored_float(s, j, head, i)};
  }

  void inverse_rope(std::vector<float>& x) const {
    const int d = c_.head_dim, n = d & -d;
    for (int at = 0; at < d; at += n) {
      for (int stride = 1; stride < n; stride *= 2) {
        for (int i = 0; i < n; ++i) {
          if ((i & stride) != 0) continue;
          float &a = x[static_cast<std::size_t>(at + i)],
                &b = x[static_cast<std::size_t>(at + i + stride)];
          const float sum = a + b, difference = a - b;
          a = sum;
          b = difference;
        }
      }
    }
    const auto root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
    for (float& v : x) v = v * root;
  }

  static float lane_sum(const float* lanes) {
    float sums[16];
    std::copy_n(lanes, 16, sums);
    for (int w = 8; w >= 1; w /= 2) {
      for (int i = 0; i < w; ++i) sums[i] += sums[i + w];
    }
    return sums[0];
  }

  std::int64_t page_index(std::int64_t j) const {
    return run_.pages(sequence_)[static_cast<std::size_t>(j / 64)];
  }
  const std::byte* page(const Side& s, std::int64_t j) const {
    const KvLayer& kv = run_.layer();
    const auto index = static_cast<std::size_t>(page_index(j));
    return s.keys ? kv.keys + index * kv.key_page_bytes : kv.values + index * kv.value_page_bytes;
  }
  // Returns a number of an f16 page, or of the f16 copy of a packed page.
  float stored_float(const Side& s, std::int64_t j, int head, int i) const {
    const KvLayer& kv = run_.layer();
    const std::byte* base = page(s, j);
    if (s.packed) {
      const auto copy =
          static_cast<std::size_t>(kv.copies[static_cast<std::size_t>(page_index(j))]);
      base = (s.keys ? kv.key_copies : kv.value_copies) + copy * kv.copy_page_bytes;
    }
    const std::int64_t slot = j % 64, d = c_.head_dim;
    const std::int64_t index =
        s.keys ? ((head * 4 + slot / 16) * d + i) * 16 + slot % 16 : (head * 64 + slot) * d + i;
    return f16_to_f32(reinterpret_cast<const std::uint16_t*>(base)[index]);
  }
  int code(const Side& s, std::int64_t j, int head, int i) const {
    const int slot = static_cast<int>(j % 64), b = s.bits, d = c_.head_dim;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(page(s, j)) + head * s.head_bytes;
    if (s.keys) {
      const int per_row = 128 / b;
      const int byte = bytes[(slot / per_row * d + i) * 16 + slot % 16];
      return byte >> (slot % per_row / 16 * b) & ((1 << b) - 1);
    }
    const std::uint8_t* unit = bytes + (slot * ((d + 15) / 16) + i / 16) * 2 * b;
    const int c = i % 16;
    if (b == 8) return unit[c];
    if (b == 2) return (unit[0] | unit[1] << 8 | unit[2] << 16 | unit[3] << 24) >> (2 * c) & 3;
    const std::uint8_t* word = unit + c % 2 * 4;
    return static_cast<int>(
        (word[0] | word[1] << 8 | word[2] << 16 | static_cast<std::uint32_t>(word[3]) << 24) >>
            (c / 2 * 4) &
        15u);
  }
  // Returns the scale (or minimum) of a number, stored by token or by channel.
  float ends(const Side& s, std::int64_t j, int head, int i, bool by_token,
             bool minimum = false) const {
    const std::int64_t slot = j % 64;
    const auto* all =
        reinterpret_cast<const std::uint16_t*>(page(s, j) + c_.kv_heads * s.head_bytes);
    const std::int64_t first = (minimum ? c_.kv_heads + head : head) * s.end_count;
    const std::int64_t at = by_token ? i / s.group * 64 + slot : slot / s.block * c_.head_dim + i;
    return f16_to_f32(all[first + at]);
  }

  static constexpr int i_any = 0;
  AttentionCase c_;
  const AttentionRun& run_;
  int sequence_;
  Side keys_, values_;
};

}  // namespace leq::test
