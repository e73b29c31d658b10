// One layer of a text in a cache of packed codes: feeds it step by step through the kernels like an
// engine, and provides the contents of its pages and the expected attention from plain loops in
// double over what each query may read.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "base/half.h"
#include "bounded_scratch.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/gpu_layout.h"
#include "cuda/layout/kv_codes.h"
#include "device_memory.h"
#include "kv_numbers.h"

namespace leq::LEQ_GPU {

struct PackedCase {
  KvType keys = KvType::simq4, values = KvType::simq4;
  int heads = 4, kv_heads = 2, head_dim = 64, window = 0;
  std::vector<int> lengths;     // lengths of the sequences
  int sinks = -1, recent = -1;  // -1: the defaults of the types
  bool exact = false;
  std::int64_t most_records = kMaxRecords;  // as in AttentionCase

  friend void PrintTo(const PackedCase& c, std::ostream* out) {
    *out << kv_scheme(c.keys).name << '/' << kv_scheme(c.values).name << ", " << c.heads << '/'
         << c.kv_heads << " heads of " << c.head_dim << ", window " << c.window << ", lengths "
         << c.lengths.size() << " x " << c.lengths.front() << (c.exact ? ", exact" : "");
  }
  KvResidual residual() const {
    KvResidual residual = kv_residual(keys, values);
    if (sinks >= 0) residual.sinks = sinks;
    if (recent >= 0) residual.recent = recent;
    return residual;
  }
  int width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// The rows of one sequence in a step.
struct PackedRows {
  int sequence, first, rows;
};
using PackedSteps = std::vector<std::vector<PackedRows>>;

class PackedText {
 public:
  explicit PackedText(const PackedCase& c) : c_(c), residual_(c.residual()) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const int length : c.lengths) pages_each_ = std::max(pages_each_, (length + 63) / 64);
    const int pages = pages_each_ * static_cast<int>(c.lengths.size());
    for (int i = 0; i < pages; ++i) order_.push_back(i);
    std::shuffle(order_.begin(), order_.end(), random);
    for (const int length : c.lengths) {
      std::vector<float> rows(static_cast<std::size_t>(length * c.width()));
      for (float& x : rows) x = normal(random);
      // Here one channel of the keys is large and one is constant.
      for (int at = 0; at < length; ++at) {
        float* const key = rows.data() + at * c.width() + c.heads * c.head_dim;
        key[3] += 20.0f;
        key[5] = 0.25f;
      }
      rows_.push_back(rows);
    }
  }

  // Feeds sequences one after another: `prompt` positions in chunks, then token by token.
  PackedSteps in_chunks(int chunk, int prompt = 1 << 20) const {
    PackedSteps steps;
    for (int s = 0; s < static_cast<int>(c_.lengths.size()); ++s) {
      const int length = c_.lengths[static_cast<std::size_t>(s)];
      for (int at = 0; at < length;) {
        const int count = at < prompt ? std::min({chunk, length - at, prompt - at}) : 1;
        steps.push_back({{s, at, count}});
        at += count;
      }
    }
    return steps;
  }
  // Feeds all sequences together: a chunk of each, then single tokens of all in one batch.
  PackedSteps together(int chunk) const {
    PackedSteps steps;
    const int longest = *std::max_element(c_.lengths.begin(), c_.lengths.end());
    for (int at = 0; at < longest;) {
      const int count = at < longest / 2 ? chunk : 1;
      std::vector<PackedRows> step;
      for (int s = 0; s < static_cast<int>(c_.lengths.size()); ++s) {
        const int rows = std::min(count, c_.lengths[static_cast<std::size_t>(s)] - at);
        if (rows > 0) step.push_back({s, at, rows});
      }
      steps.push_back(step);
      at += count;
    }
    return steps;
  }

  struct Fed {
    std::vector<std::vector<float>> out;  // [sequences][length][H d]
    std::vector<std::byte> keys, values, key_copies, value_copies;
  };

  // Each step appends, quantizes and attends.
  Fed feed(const PackedSteps& steps) const {
    const std::size_t pages = order_.size();
    const DeviceArray<std::byte> keys(std::vector<std::byte>(pages * bytes(KvPart::keys), kJunk)),
        values(std::vector<std::byte>(pages * bytes(KvPart::values), kJunk)),
        key_copies(std::vector<std::byte>(pages * copy_bytes(), kJunk)),
        value_copies(std::vector<std::byte>(pages * copy_bytes(), kJunk));
    Fed fed;
    for (const int length : c_.lengths) {
      fed.out.emplace_back(static_cast<std::size_t>(length * c_.heads * c_.head_dim));
    }
    KvPages key_pages = {keys.data(), static_cast<std::int64_t>(bytes(KvPart::keys)), c_.keys,
                         codes_of(KvPart::keys, c_.keys, c_.head_dim)};
    KvPages value_pages = {values.data(), static_cast<std::int64_t>(bytes(KvPart::values)),
                           c_.values, codes_of(KvPart::values, c_.values, c_.head_dim)};
    const auto copy = static_cast<std::int64_t>(copy_bytes());
    const KvCopied copied = {{key_copies.data(), copy, KvType::f16},
                             {value_copies.data(), copy, KvType::f16},
                             residual_};
    for (const auto& step : steps) run(step, key_pages, value_pages, copied, fed);
    fed.keys = keys.host();
    fed.values = values.host();
    fed.key_copies = key_copies.host();
    fed.value_copies = value_copies.host();
    return fed;
  }

  // The contents of a side's pages for one head, [length][d]: the numbers that a query reads from
  // closed blocks, and the numbers that were appended.
  struct Side {
    std::vector<double> stored, step;  // step of each number's codes, 0 for floats
    std::vector<double> appended;
    std::vector<int> codes;
    std::vector<double> scales;  // one for each number, like `minima`
    std::vector<double> minima;
  };
  Side side(const Fed& fed, KvPart part, int sequence, int head) const {
    const bool keys = part == KvPart::keys;
    const KvType type = keys ? c_.keys : c_.values;
    const KvScheme& scheme = kv_scheme(type);
    const int length = c_.lengths[static_cast<std::size_t>(sequence)], d = c_.head_dim;
    Side side;
    side.appended = appended(part, sequence, head);
    const std::vector<std::byte>& all = keys ? fed.keys : fed.values;
    for (int page = 0; page * 64 < length; ++page) {
      const std::size_t row = kv_number_bytes(scheme, d);
      const auto ends = static_cast<std::size_t>(kv_ends(part, type, d));
      std::vector<std::byte> portable(64 * row + 4 * ends);
      const auto at = static_cast<std::size_t>(place(sequence, page)) * bytes(part);
      test::read_kv(test::PageOrder::gpu, {part, type, c_.kv_heads, d, head},
                    {all.data() + at, bytes(part)}, portable);
      for (int slot = 0; slot < std::min(64, length - page * 64); ++slot) {
        for (int c = 0; c < d; ++c) add_number(side, scheme, part, portable, row, ends, slot, c);
      }
    }
    return side;
  }

  // Returns the appended numbers, rounded to f16 if the cache first stores them in f16.
  std::vector<double> appended(KvPart part, int sequence, int head) const {
    const bool keys = part == KvPart::keys;
    const KvScheme& scheme = kv_scheme(keys ? c_.keys : c_.values);
    const int length = c_.lengths[static_cast<std::size_t>(sequence)], d = c_.head_dim;
    std::vector<double> out;
    for (int at = 0; at < length; ++at) {
      const float* const from = rows_[static_cast<std::size_t>(sequence)].data() + at * c_.width() +
                                (c_.heads + (keys ? head : c_.kv_heads + head)) * d;
      std::vector<double> x(from, from + d);
      for (const double v : x) {
        const bool half = scheme.blocked() || scheme.type == KvType::f16;
        out.push_back(half ? f16_to_f32(f32_to_f16(static_cast<float>(v))) : v);
      }
    }
    return out;
  }

  // Attention in double over what the query may read, and the same weighted mean of the values'
  // magnitudes. `halves`: includes the roundings to f16 of q and of q times a scale.
  struct Near {
    std::vector<double> out, size;
  };
  Near in_double(const Fed& fed, int sequence, bool halves) const {
    Near near;
    const int length = c_.lengths[static_cast<std::size_t>(sequence)],
              group = c_.heads / c_.kv_heads;
    std::vector<Side> keys, values;
    for (int head = 0; head < c_.kv_heads; ++head) {
      keys.push_back(side(fed, KvPart::keys, sequence, head));
      values.push_back(side(fed, KvPart::values, sequence, head));
    }
    for (int at = 0; at < length; ++at) {
      for (int head = 0; head < c_.heads; ++head) {
        attend(sequence, at, head, keys[static_cast<std::size_t>(head / group)],
               values[static_cast<std::size_t>(head / group)], halves, near);
      }
    }
    return near;
  }

  std::size_t bytes(KvPart part) const {
    return kv_page_bytes(part, part == KvPart::keys ? c_.keys : c_.values, c_.kv_heads,
                         c_.head_dim);
  }

 private:
  static constexpr std::byte kJunk{0xff};  // NaN both as a scale and as f16

  std::size_t copy_bytes() const {
    return kv_page_bytes(KvPart::keys, KvType::f16, c_.kv_heads, c_.head_dim);
  }
  int place(int sequence, int page) const {
    return order_[static_cast<std::size_t>(sequence * pages_each_ + page)];
  }

  void run(const std::vector<PackedRows>& step, const KvPages& keys, const KvPages& values,
           const KvCopied& copied, Fed& fed) const {
    std::vector<AttentionRun> runs;
    std::vector<std::int32_t> row_runs, table;
    std::vector<float> rows;
    AttentionBatch batch;
    for (const PackedRows& part : step) {
      row_runs.insert(row_runs.end(), static_cast<std::size_t>(part.rows),
                      static_cast<std::int32_t>(runs.size()));
      const auto at = static_cast<std::int32_t>(table.size());
      runs.push_back(
          {static_cast<std::int32_t>(batch.tokens), part.rows, part.first, at, at + pages_each_});
      // If all of a page was quantized before this step, only its codes are needed.
      const std::int64_t quantized = residual_.quantized(part.first);
      for (int page = 0; page < pages_each_; ++page) table.push_back(place(part.sequence, page));
      for (int page = 0; page < pages_each_; ++page) {
        const bool kept = (page == 0 && residual_.sinks > 0) || (page + 1) * 64 > quantized;
        table.push_back(kept ? place(part.sequence, page) : -1);
      }
      const auto from =
          rows_[static_cast<std::size_t>(part.sequence)].begin() + part.first * c_.width();
      rows.insert(rows.end(), from, from + part.rows * c_.width());
      batch.tokens += part.rows;
      batch.longest_run = std::max<std::int64_t>(batch.longest_run, part.rows);
      batch.single_runs += part.rows == 1 ? 1 : 0;
      batch.end = std::max<std::int64_t>(batch.end, part.first + part.rows);
    }
    const DeviceArray<float> qkv(rows);
    const DeviceArray<std::int32_t> table_there(table), row_runs_there(row_runs);
    const DeviceArray<AttentionRun> runs_there(runs);
    const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{~0ull});
    const std::int64_t out_width = std::int64_t{c_.heads} * c_.head_dim;
    const DeviceArray<float> out(static_cast<std::size_t>(batch.tokens * out_width));
    batch.runs = runs_there.data();
    batch.run_count = static_cast<int>(runs.size());
    batch.row_runs = row_runs_there.data();
    batch.pages = table_there.data();
    const AttentionHeads heads = {c_.heads, c_.kv_heads, c_.head_dim, c_.window,
                                  c_.heads / c_.kv_heads};
    RopeAppendArguments append;
    append.qkv = {qkv.data(), c_.width()};
    append.batch = batch;
    append.heads = heads;
    append.keys = keys;
    append.values = values;
    append.copied = copied;
    append.fault = {fault.data(), 1};
    write_late({qkv.bytes()});
    KvQuantizeArguments quantize = {batch, heads, keys, values, copied, true, 1};
    quantize.layers[0] = {kv_scheme(c_.keys).blocked() ? keys.base : nullptr,
                          kv_scheme(c_.values).blocked() ? values.base : nullptr, copied.keys.base,
                          copied.values.base};
    launch_kv_quantize(quantize, test_stream());
    launch_rope_append(append, test_stream());
    quantize.whole_before = false;
    launch_kv_quantize(quantize, test_stream());
    AttentionArguments a;
    a.qkv = append.qkv;
    a.out = {out.data(), out_width};
    a.batch = batch;
    a.heads = heads;
    a.keys = keys;
    a.values = values;
    a.copied = copied;
    a.exact = c_.exact;
    const BoundedScratch scratch(a, c_.most_records);
    const DeviceArray<unsigned> tickets{std::vector<unsigned>(kTickets)};
    a.codes.tickets = tickets.data();
    launch_attention(a, test_stream());
    scratch.expect_kept();
    const std::vector<float> found = out.host();
    std::int64_t row = 0;
    for (const PackedRows& part : step) {
      std::copy_n(
          found.begin() + row * out_width, part.rows * out_width,
          fed.out[static_cast<std::size_t>(part.sequence)].begin() + part.first * out_width);
      row += part.rows;
    }
  }

  static void add_number(Side& side, const KvScheme& scheme, KvPart part,
                         const std::vector<std::byte>& portable, std::size_t row, std::size_t ends,
                         int slot, int c) {
    const std::byte* const at = portable.data() + static_cast<std::size_t>(slot) * row;
    if (!scheme.coded()) {
      float x = 0;
      if (scheme.bits == 32) {
        std::memcpy(&x, at + c * 4, 4);
      } else {
        std::uint16_t half = 0;
        std::memcpy(&half, at + c * 2, 2);
        x = f16_to_f32(half);
      }
      side.stored.push_back(x);
      side.step.push_back(0);
      side.codes.push_back(0);
      side.scales.push_back(0);
      side.minima.push_back(x);
      return;
    }
    const int bit = c * scheme.bits;
    const int code = std::to_integer<int>(at[bit / 8]) >> bit % 8 & ((1 << scheme.bits) - 1);
    const auto d = static_cast<int>(row) * 8 / scheme.bits;
    const bool along_channel = part == KvPart::keys && scheme.blocked();
    const int groups = static_cast<int>(ends) / 64, width = scheme.group == 0 ? d : scheme.group;
    const int end = along_channel ? slot / scheme.block * d + c : slot * groups + c / width;
    const auto end_at = [&](std::size_t first) {
      std::uint16_t half = 0;
      std::memcpy(&half, portable.data() + 64 * row + 2 * (first + static_cast<std::size_t>(end)),
                  2);
      return static_cast<double>(f16_to_f32(half));
    };
    const double s = end_at(0), m = end_at(ends);
    side.stored.push_back(s * code + m);
    side.step.push_back(s);
    side.codes.push_back(code);
    side.scales.push_back(s);
    side.minima.push_back(m);
  }

  // Returns whether the query at `at` reads the number at position j as a code.
  bool reads_code(KvType type, int at, int j) const {
    if (!kv_scheme(type).coded()) return false;
    if (!kv_scheme(type).blocked()) return true;
    return j >= residual_.sinks &&
           j / residual_.block * residual_.block + residual_.block <= at + 1 - residual_.recent;
  }

  void attend(int sequence, int at, int head, const Side& keys, const Side& values, bool halves,
              Near& near) const {
    const int d = c_.head_dim;
    const auto half = [&](double x) {
      return halves ? static_cast<double>(f16_to_f32(f32_to_f16(static_cast<float>(x)))) : x;
    };
    const float* const from =
        rows_[static_cast<std::size_t>(sequence)].data() + at * c_.width() + head * d;
    const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)));
    std::vector<double> q;
    for (int c = 0; c < d; ++c) q.push_back(from[c] * factor);
    // With int8 keys the query is quantized to int8.
    if (c_.keys == KvType::int8) {
      double largest = 0;
      for (const double x : q) largest = std::max(largest, std::abs(x));
      for (double& x : q) x = std::nearbyint(x * 127 / largest) * largest / 127;
    }
    for (double& x : q) x = half(x);
    const bool by_channel = kv_scheme(c_.keys).blocked();
    const int first = c_.window > 0 ? std::max(0, at + 1 - c_.window) : 0;
    std::vector<double> scores;
    for (int j = first; j <= at; ++j) {
      double score = 0;
      for (int c = 0; c < d; ++c) {
        const auto i = static_cast<std::size_t>(j * d + c);
        const double x = q[static_cast<std::size_t>(c)];
        if (!reads_code(c_.keys, at, j)) {
          score += x * keys.appended[i];
        } else if (by_channel) {
          score += half(x * keys.scales[i]) * keys.codes[i] + x * keys.minima[i];
        } else {
          score += x * keys.stored[i];
        }
      }
      scores.push_back(score);
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    std::vector<double> out(static_cast<std::size_t>(d)), size(out.size());
    double total = 0;
    for (int j = first; j <= at; ++j) {
      const double p = std::exp(scores[static_cast<std::size_t>(j - first)] - largest);
      total += p;
      for (int c = 0; c < d; ++c) {
        const auto i = static_cast<std::size_t>(j * d + c);
        const bool code = reads_code(c_.values, at, j);
        out[static_cast<std::size_t>(c)] += p * (code ? values.stored[i] : values.appended[i]);
        size[static_cast<std::size_t>(c)] +=
            p * (code ? std::abs(values.minima[i]) + values.scales[i] * values.codes[i]
                      : std::abs(values.appended[i]));
      }
    }
    for (double& x : out) x /= total;
    near.out.insert(near.out.end(), out.begin(), out.end());
    for (const double x : size) near.size.push_back(x / total);
  }

  PackedCase c_;
  KvResidual residual_;
  int pages_each_ = 0;
  std::vector<int> order_;
  std::vector<std::vector<float>> rows_;  // [sequences][length][width]
};

}  // namespace leq::LEQ_GPU
