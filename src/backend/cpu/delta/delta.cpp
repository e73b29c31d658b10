#include "backend/cpu/delta/delta.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "backend/checks.h"
#include "backend/cpu/rows/first_bad_row.h"
#include "backend/cpu/rows/quantize_rows.h"
#include "backend/cpu/rows/rows_layout.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/fixed_log.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {

constexpr float kL2Eps = 1e-6f;
constexpr float kLinearSoftplus = 20.0f;  // softplus(x) = x above
constexpr std::int64_t kMostTaps = 16;
// Below this many numbers waking other threads costs more than it brings.
constexpr std::int64_t kSerialNumbers = 16384;
constexpr std::int64_t kRowsPerTask = 4;

// ln(1 + e^x)
float softplus(float x) {
  if (x > kLinearSoftplus) return x;
  constexpr double kLn2 = 0x1.62e42fefa39efp-1;
  return static_cast<float>(fixed_log2(1.0 + static_cast<double>(leq_exp(x))) * kLn2);
}

float sigmoid(float x) { return 1.0f / (1.0f + leq_exp(-x)); }

std::int64_t widest_head(const DeltaShape& shape) {
  return std::max(shape.key_dim, shape.value_dim);
}

// One thread's part of the scratch.
struct DeltaScratch {
  float* inputs = nullptr;  // [taps - 1][widest head] of the convolution, for the next step
  float* row = nullptr;     // [H_v d_v]
};

std::size_t worker_bytes(const DeltaShape& shape) {
  const std::int64_t numbers = (shape.taps - 1) * widest_head(shape) + shape.values();
  return round_up(static_cast<std::size_t>(numbers) * sizeof(float), std::size_t{64});
}

// A layer's part of a state: null for zeros.
struct StateBefore {
  const float* recurrent = nullptr;  // [H_v] blocks of columns
  const float* inputs = nullptr;     // [taps - 1][channels]
};
struct StateAfter {
  float* recurrent = nullptr;
  float* inputs = nullptr;
};

std::int64_t recurrent_numbers(const DeltaShape& shape) { return shape.key_dim * shape.values(); }

StateBefore state_before(const SequenceRun& run, const DeltaShape& shape) {
  if (run.state_from == nullptr) return {};
  const auto* first = reinterpret_cast<const float*>(run.state_from + shape.state_at);
  return {first, first + recurrent_numbers(shape)};
}

StateAfter state_after(const SequenceRun& run, const DeltaShape& shape) {
  auto* first = reinterpret_cast<float*>(run.state_to + shape.state_at);
  return {first, first + recurrent_numbers(shape)};
}

// Channels of the convolution that make one head.
struct HeadChannels {
  std::int64_t first = 0;
  std::int64_t count = 0;
  int value_head = -1;  // -1: of queries or keys
  bool query = false;
};

class DeltaNet {
 public:
  DeltaNet(const DeltaContext& context, Rows& mixed, Rows& gates, const BatchView& batch,
           const DeltaShape& shape, const RowsFor& out)
      : context_(context),
        mixed_(mixed),
        gates_(gates),
        batch_(batch),
        shape_(shape),
        out_(out),
        query_gain_(static_cast<std::size_t>(shape.key_dim), gain(2)),
        key_gain_(static_cast<std::size_t>(shape.key_dim), gain(1)) {
    cut_heads();
    chain_runs();
  }

  void run() {
    check_inputs();
    each(std::ssize(chains_) * std::ssize(heads_), [this](std::int64_t task, int worker) {
      const HeadChannels& head = heads_[static_cast<std::size_t>(task % std::ssize(heads_))];
      for (const SequenceRun& run : chain(task / std::ssize(heads_))) prepare(run, head, worker);
    });
    context_.pool.run(std::ssize(chains_) * shape_.value_heads, [this](std::int64_t task, int) {
      for (const SequenceRun& run : chain(task / shape_.value_heads)) {
        recur(run, static_cast<int>(task % shape_.value_heads));
      }
    });
    finish();
  }

 private:
  // l2(x) as an RMS norm: x / sqrt(mean + eps / d) / sqrt(d), and once more 1 / sqrt(d) for queries.
  float gain(int roots) const {
    return static_cast<float>(std::pow(static_cast<double>(shape_.key_dim), -0.5 * roots));
  }

  void cut_heads() {
    for (int head = 0; head < 2 * shape_.key_heads; ++head) {
      heads_.push_back({std::int64_t{head} * shape_.key_dim, shape_.key_dim, -1,
                        head < shape_.key_heads});
    }
    for (int head = 0; head < shape_.value_heads; ++head) {
      heads_.push_back({2 * shape_.keys() + std::int64_t{head} * shape_.value_dim,
                        shape_.value_dim, head, false});
    }
  }

  // Runs of one sequence follow each other: they write one state.
  void chain_runs() {
    for (const SequenceRun& run : batch_.runs) {
      const auto same = std::ranges::find_if(chains_, [&](const std::vector<SequenceRun>& one) {
        return one[0].state_to == run.state_to;
      });
      if (same == chains_.end()) {
        chains_.push_back({run});
      } else {
        same->push_back(run);
      }
    }
  }
  const std::vector<SequenceRun>& chain(std::int64_t index) const {
    return chains_[static_cast<std::size_t>(index)];
  }

  template <class Body>
  void each(std::int64_t tasks, Body&& body) {
    if (batch_.tokens * mixed_.width > kSerialNumbers) return context_.pool.run(tasks, body);
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
  }

  DeltaScratch scratch_of(int worker) const {
    const auto at = static_cast<std::size_t>(worker) * worker_bytes(shape_);
    DeltaScratch scratch;
    scratch.inputs = reinterpret_cast<float*>(context_.scratch.data() + at);
    scratch.row = scratch.inputs + (shape_.taps - 1) * widest_head(shape_);
    return scratch;
  }

  float* row(std::int64_t row) const { return mixed_.values + row * mixed_.value_stride; }
  float* gate_row(std::int64_t row) const { return gates_.values + row * gates_.value_stride; }

  // A number that is not finite would stay in a state for good.
  void check_inputs() {
    FirstBadRow bad;
    each((batch_.tokens + kRowsPerTask - 1) / kRowsPerTask, [&](std::int64_t task, int) {
      const std::int64_t last = std::min((task + 1) * kRowsPerTask, batch_.tokens);
      for (std::int64_t t = task * kRowsPerTask; t < last; ++t) {
        if (!std::isfinite(context_.rows.absmax(row(t), mixed_.width)) ||
            !std::isfinite(context_.rows.absmax(gate_row(t), gates_.width))) {
          bad.report(t);
        }
      }
    });
    bad.check("input of the delta net");
  }

  // Convolution, SiLU, and what a head's own kind needs, in place.
  void prepare(const SequenceRun& run, const HeadChannels& head, int worker) {
    const StateBefore from = state_before(run, shape_);
    const StateAfter to = state_after(run, shape_);
    const auto bytes = static_cast<std::size_t>(head.count) * sizeof(float);
    const std::int64_t before = shape_.taps - 1;
    float* next = scratch_of(worker).inputs;
    for (std::int64_t i = 0; i < before; ++i) {
      const float* input = input_at(run, from, head, run.rows - before + i);
      if (input == nullptr) {
        std::fill_n(next + i * head.count, head.count, 0.0f);
      } else {
        std::copy_n(input, head.count, next + i * head.count);
      }
    }
    convolve(run, from, head);
    for (std::int64_t i = 0; i < before; ++i) {
      std::memcpy(to.inputs + i * shape_.channels() + head.first, next + i * head.count, bytes);
    }
    if (head.value_head >= 0) return open_gates(run, head.value_head);
    const float* gains = head.query ? query_gain_.data() : key_gain_.data();
    const float eps = kL2Eps / static_cast<float>(shape_.key_dim);
    for (std::int64_t t = run.first_row; t < run.first_row + run.rows; ++t) {
      float* x = row(t) + head.first;
      context_.rows.rms_norm(x, gains, eps, head.count, x);
    }
  }

  // What the convolution reads at token `token` of a run, or before it; nullptr for zeros.
  const float* input_at(const SequenceRun& run, const StateBefore& from,
                        const HeadChannels& head, std::int64_t token) const {
    if (token >= 0) return row(run.first_row + token) + head.first;
    if (from.inputs == nullptr) return nullptr;
    return from.inputs + (shape_.taps - 1 + token) * shape_.channels() + head.first;
  }

  // The last token first, since its outputs take the place of what only later tokens read.
  void convolve(const SequenceRun& run, const StateBefore& from,
                const HeadChannels& head) const {
    std::array<const float*, kMostTaps> inputs = {};
    for (std::int64_t token = run.rows - 1; token >= 0; --token) {
      for (int tap = 0; tap < shape_.taps; ++tap) {
        const float* input = input_at(run, from, head, token - (shape_.taps - 1) + tap);
        inputs[static_cast<std::size_t>(tap)] = input != nullptr ? input : zeros_.data();
      }
      context_.kernels.convolve(inputs.data(), shape_.conv + head.first, shape_.channels(),
                                shape_.taps, head.count,
                                row(run.first_row + token) + head.first);
    }
  }

  // b and a become beta and alpha.
  void open_gates(const SequenceRun& run, int head) const {
    const float rate = leq_exp(shape_.a_log[head]);
    for (std::int64_t t = run.first_row; t < run.first_row + run.rows; ++t) {
      float& beta = gate_row(t)[head];
      float& alpha = gate_row(t)[shape_.value_heads + head];
      beta = sigmoid(beta);
      alpha = leq_exp(-(rate * softplus(alpha + shape_.dt_bias[head])));
    }
  }

  void recur(const SequenceRun& run, int head) const {
    const StateBefore from = state_before(run, shape_);
    const StateAfter to = state_after(run, shape_);
    const int key_head = head / (shape_.value_heads / shape_.key_heads);
    const std::int64_t head_numbers = std::int64_t{shape_.key_dim} * shape_.value_dim;
    float* first = row(run.first_row);
    DeltaBlock block;
    block.query = first + std::int64_t{key_head} * shape_.key_dim;
    block.key = block.query + shape_.keys();
    block.beta = gate_row(run.first_row) + head;
    block.alpha = block.beta + shape_.value_heads;
    block.tokens = run.rows;
    block.row_stride = mixed_.value_stride;
    block.gate_stride = gates_.value_stride;
    block.key_dim = shape_.key_dim;
    for (int column = 0; column < shape_.value_dim; column += kDeltaColumns) {
      block.columns = std::min(kDeltaColumns, shape_.value_dim - column);
      block.value = first + 2 * shape_.keys() + std::int64_t{head} * shape_.value_dim + column;
      const std::int64_t at = head * head_numbers + std::int64_t{column} * shape_.key_dim;
      block.to = to.recurrent + at;
      block.from = from.recurrent == nullptr ? block.to : from.recurrent + at;
      if (from.recurrent == nullptr) {
        std::fill_n(block.to, std::int64_t{block.columns} * shape_.key_dim, 0.0f);
      }
      context_.kernels.recur(block);
    }
  }

  // out = rms_norm(o) * silu(z) of each value head, then codes as the reader wants them.
  void finish() {
    Rows& out = out_.rows;
    const QuantizedUnit unit = quantized_unit(out.format);
    FirstBadRow bad;
    const std::int64_t tasks = (batch_.tokens + kRowsPerTask - 1) / kRowsPerTask;
    each(tasks, [&](std::int64_t task, int worker) {
      const std::int64_t last = std::min((task + 1) * kRowsPerTask, batch_.tokens);
      for (std::int64_t t = task * kRowsPerTask; t < last; ++t) {
        float* x = out.values != nullptr ? out.values + t * out.value_stride
                                         : scratch_of(worker).row;
        finish_row(t, x);
        if (unit == QuantizedUnit::nothing || unit == QuantizedUnit::rows) continue;
        if (!quantize_columns(context_.rows, x, t, 0, out.width, out_)) bad.report(t);
      }
    });
    bad.check("output of the delta net");
    if (unit == QuantizedUnit::rows) {
      quantize_step(context_.pool, context_.rows, batch_.tokens, "output of the delta net", out_);
    }
  }

  void finish_row(std::int64_t t, float* x) const {
    const Norm& norm = shape_.norm;
    const float* o = row(t) + 2 * shape_.keys();
    const float* z = row(t) + shape_.channels();
    for (std::int64_t at = 0; at < shape_.values(); at += shape_.value_dim) {
      context_.rows.rms_norm(o + at, norm.gain, norm.eps, shape_.value_dim, x + at);
    }
    context_.rows.swiglu(z, x, shape_.values(), x);
    const float* factors = out_.consumer.inv_smooth;
    if (factors != nullptr) context_.rows.multiply(factors, shape_.values(), x);
  }

  const DeltaContext& context_;
  Rows& mixed_;
  Rows& gates_;
  const BatchView& batch_;
  const DeltaShape& shape_;
  const RowsFor& out_;
  std::vector<float> query_gain_, key_gain_;  // [d_k]
  std::vector<float> zeros_ = std::vector<float>(static_cast<std::size_t>(widest_head(shape_)));
  std::vector<HeadChannels> heads_;
  std::vector<std::vector<SequenceRun>> chains_;
};

}  // namespace

std::size_t delta_scratch_bytes(int threads, const DeltaShape& shape) {
  return static_cast<std::size_t>(threads) * worker_bytes(shape);
}

void delta_net(const DeltaContext& context, Rows& mixed, Rows& gates, const BatchView& batch,
               const DeltaShape& shape, const RowsFor& out) {
  ensure(shape.taps <= kMostTaps, "delta net: ", shape.taps, " taps");
  ensure(context.scratch.size() >= delta_scratch_bytes(context.pool.threads(), shape),
         "delta net: scratch of ", context.scratch.size(), " bytes, expected ",
         delta_scratch_bytes(context.pool.threads(), shape));
  DeltaNet(context, mixed, gates, batch, shape, out).run();
}

}  // namespace leq::cpu
