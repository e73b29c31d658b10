// Runs rope_append and attention of the CPU backend over sequences that are split into batches in
// various ways, on pages that contain NaN at every position not written.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "base/random.h"

namespace leq::test {

struct AttentionCase {
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 32;
  int window = 0;
  KvType key_type = KvType::f32;
  KvType value_type = KvType::f32;
  bool rotary = true;
  bool head_norms = false;
  RowsFormat output = {};
  RowsConsumer consumer;
  std::int64_t context = 2048;
  int sinks = -1, recent = -1;    // negative: the defaults of the types
  float attention_factor = 1;     // factor of cosines and sines
  std::int64_t query_period = 0;  // period of the temperature of q, 1 + 0.3 ln(1 + period)
  float key_bias = 0;             // for channel 1 of every key, whose rotary pair turns fast

  KvResidual residual() const {
    KvResidual residual = kv_residual(key_type, value_type);
    if (sinks >= 0) residual.sinks = sinks;
    if (recent >= 0) residual.recent = recent;
    return residual;
  }
  std::int64_t width() const { return std::int64_t{heads} * head_dim; }
  std::int64_t qkv_width() const { return std::int64_t{heads + 2 * kv_heads} * head_dim; }
};

// A part of a batch: the next `count` positions of one sequence.
struct Part {
  int sequence = 0;
  std::int64_t rows = 0;
};
using Schedule = std::vector<std::vector<Part>>;

// Returns a schedule that feeds sequence 0 in chunks.
inline Schedule in_chunks(std::int64_t length, std::int64_t chunk) {
  Schedule schedule;
  for (std::int64_t done = 0; done < length; done += chunk) {
    schedule.push_back({{0, std::min(chunk, length - done)}});
  }
  return schedule;
}

// The input row of a position, which does not depend on how sequences are split into batches.
inline std::vector<float> qkv_row(const AttentionCase& c, int sequence, std::int64_t position) {
  Random random(static_cast<std::uint64_t>(sequence) * 100003 +
                static_cast<std::uint64_t>(position) * 17 + 5);
  std::vector<float> row(static_cast<std::size_t>(c.qkv_width()));
  for (float& x : row) x = random.normal() * 1.5f;
  for (int head = c.heads; head < c.heads + c.kv_heads; ++head) {
    row[static_cast<std::size_t>(head * c.head_dim + 1)] += c.key_bias;
  }
  return row;
}

inline std::vector<float> inverse_frequencies(int head_dim) {
  std::vector<float> inv;
  for (int i = 0; i < head_dim / 2; ++i) {
    const float e = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    inv.push_back(1.0f / static_cast<float>(std::pow(10000.0, static_cast<double>(e))));
  }
  return inv;
}

inline std::vector<float> head_gain(int head_dim, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> gain(static_cast<std::size_t>(head_dim));
  for (float& g : gain) g = 0.5f + random.uniform();
  return gain;
}

class AttentionRun {
 public:
  static constexpr int kSequences = 3;

  AttentionRun(const AttentionCase& c, const CpuOptions& options, std::int64_t largest_batch)
      : case_(c),
        backend_(make_cpu_backend(options)),
        inv_freq_(c.rotary ? inverse_frequencies(c.head_dim) : std::vector<float>{}),
        q_gain_(head_gain(c.head_dim, 1)),
        k_gain_(head_gain(c.head_dim, 2)),
        q_norm_{NormKind::rms, q_gain_.data(), nullptr, 1e-6f, c.head_dim},
        k_norm_{NormKind::rms, k_gain_.data(), nullptr, 1e-6f, c.head_dim},
        rope_(make_rope(backend_->memory(), inv_freq_, c.attention_factor, c.context)),
        qkv_(backend_->allocate_rows(largest_batch, c.qkv_width(), {})),
        out_(backend_->allocate_rows(largest_batch, c.width(), c.output)) {
    shape_.heads = c.heads;
    shape_.kv_heads = c.kv_heads;
    shape_.head_dim = c.head_dim;
    shape_.window = c.window;
    shape_.rotary = c.rotary;
    if (c.query_period > 0) {
      std::vector<float> factors;
      for (std::int64_t i = 0; i <= (c.context - 1) / c.query_period; ++i) {
        const double sharper = 1.0 + 0.3 * std::log(1.0 + static_cast<double>(i));
        factors.push_back(static_cast<float>(sharper / std::sqrt(static_cast<double>(c.head_dim))));
      }
      set_query_factors(backend_->memory(), rope_, c.query_period, factors);
      shape_.tempered = true;
    }
    if (c.head_norms) {
      shape_.q_norm = &q_norm_;
      shape_.k_norm = &k_norm_;
    }
    backend_->memory().scratch(backend_->layout().scratch_bytes(largest_batch, shape_, c.context));
    take_pages();
  }

  // Computes the outputs of all positions by sequence: rows(sequence)[position][H d].
  void run(const Schedule& schedule) {
    for (const auto& parts : schedule) step(parts);
  }

  const std::vector<float>& values(int sequence) const { return values_[sequence]; }
  const std::vector<std::uint8_t>& codes(int sequence) const { return codes_[sequence]; }
  const std::vector<float>& scales(int sequence) const { return scales_[sequence]; }
  // q after norm, rotation and its factor, [position][H d].
  const std::vector<float>& queries(int sequence) const { return queries_[sequence]; }
  const KvLayer& layer() const { return layer_; }
  std::span<const std::int32_t> pages(int sequence) const { return pages_[sequence]; }
  Backend& backend() { return *backend_; }

 private:
  // Takes pages in random order: adjacent pages of a sequence are not adjacent in memory.
  void take_pages() {
    const auto pages = static_cast<std::int32_t>(case_.context / kPageTokens);
    layer_.key_type = case_.key_type;
    layer_.value_type = case_.value_type;
    layer_.key_page_bytes =
        backend_->layout().page_bytes(KvPart::keys, case_.key_type, case_.kv_heads, case_.head_dim);
    layer_.value_page_bytes = backend_->layout().page_bytes(KvPart::values, case_.value_type,
                                                            case_.kv_heads, case_.head_dim);
    keys_ = Buffer(backend_->memory(),
                   layer_.key_page_bytes * static_cast<std::size_t>(pages) * kSequences);
    values_memory_ = Buffer(backend_->memory(),
                            layer_.value_page_bytes * static_cast<std::size_t>(pages) * kSequences);
    std::memset(keys_.data(), 0xff, keys_.size());  // NaN both as f32 and as f16
    std::memset(values_memory_.data(), 0xff, values_memory_.size());
    layer_.keys = keys_.data();
    layer_.values = values_memory_.data();
    take_copies(pages);
    for (std::int32_t page = 0; page < pages; ++page) {
      for (int s = 0; s < kSequences; ++s) {
        pages_[s].push_back((page * 7 % pages) * kSequences + (s + page) % kSequences);
      }
    }
  }

  // Gives every page an f16 copy; copies are numbered in descending order of their pages.
  void take_copies(std::int32_t pages) {
    layer_.residual = case_.residual();
    if (!layer_.residual.copies()) return;
    layer_.copy_page_bytes =
        backend_->layout().page_bytes(KvPart::keys, KvType::f16, case_.kv_heads, case_.head_dim);
    const std::int32_t count = pages * kSequences;
    for (std::int32_t page = 0; page < count; ++page) copies_.push_back(count - 1 - page);
    for (Buffer* memory : {&key_copies_, &value_copies_}) {
      *memory =
          Buffer(backend_->memory(), layer_.copy_page_bytes * static_cast<std::size_t>(count));
      std::memset(memory->data(), 0xff, memory->size());
    }
    layer_.key_copies = key_copies_.data();
    layer_.value_copies = value_copies_.data();
    layer_.copies = copies_;
  }

  void step(const std::vector<Part>& parts) {
    std::vector<SequenceRun> runs;
    std::int64_t row = 0;
    for (const Part& part : parts) {
      SequenceRun run;
      run.sequence = part.sequence;
      run.first_row = row;
      run.rows = part.rows;
      run.first_position = lengths_[part.sequence];
      run.pages = pages_[part.sequence];
      for (std::int64_t i = 0; i < part.rows; ++i, ++row) {
        const auto input = qkv_row(case_, part.sequence, run.first_position + i);
        std::copy(input.begin(), input.end(), qkv_.values + row * qkv_.value_stride);
      }
      lengths_[part.sequence] += part.rows;
      runs.push_back(run);
    }
    const BatchView batch{row, runs};
    backend_->quantize_kv_blocks(batch, shape_, {&layer_, 1});
    backend_->rope_append(qkv_, batch, shape_, rope_, layer_);
    backend_->attention(qkv_, batch, shape_, layer_, {out_, case_.consumer});
    for (const SequenceRun& run : runs) collect(run);
  }

  void collect(const SequenceRun& run) {
    for (std::int64_t row = run.first_row; row < run.first_row + run.rows; ++row) {
      const auto add = [&](auto& target, const auto* from, std::int64_t count) {
        if (from != nullptr)
          target[run.sequence].insert(target[run.sequence].end(), from, from + count);
      };
      add(queries_, qkv_.values + row * qkv_.value_stride, case_.width());
      if (out_.values != nullptr) {
        add(values_, out_.values + row * out_.value_stride, case_.width());
      }
      if (out_.codes != nullptr) {
        add(codes_, out_.codes + row * out_.code_stride, out_.code_stride - 64);
        add(scales_, out_.scales + row * out_.scale_stride, out_.scale_stride);
      }
    }
  }

  AttentionCase case_;
  std::unique_ptr<Backend> backend_;
  AttentionShape shape_;
  std::vector<float> inv_freq_, q_gain_, k_gain_;
  Norm q_norm_, k_norm_;
  RopeTable rope_;
  Rows qkv_, out_;
  Buffer keys_, values_memory_, key_copies_, value_copies_;
  std::vector<std::int32_t> copies_;
  KvLayer layer_;
  std::vector<std::int32_t> pages_[kSequences];
  std::int64_t lengths_[kSequences] = {};
  std::vector<float> values_[kSequences], scales_[kSequences], queries_[kSequences];
  std::vector<std::uint8_t> codes_[kSequences];
};

}  // namespace leq::test
