#include "backend/cpu/delta/delta.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "backend/cpu/delta/conv_inputs.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/fixed_log.h"
#include "base/float_math.h"

namespace leq::cpu {
namespace {

constexpr float kL2Eps = 1e-6f;
constexpr float kLinearSoftplus = 20.0f;  // softplus(x) = x above this

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

// Tokens of a head that are prepared together, so that their rows remain in the L1 and L2 caches.
constexpr std::int64_t kBlockTokens = 32;

// One thread's part of the scratch.
struct DeltaScratch {
  float* query = nullptr;  // [kBlockTokens][d_k]
  float* key = nullptr;    // [kBlockTokens][d_k]
  float* value = nullptr;  // [kBlockTokens][d_v]: v, then o
  float* alpha = nullptr;  // [kBlockTokens]
  float* beta = nullptr;   // [kBlockTokens]
};

std::size_t worker_bytes(const DeltaShape& shape) {
  const std::int64_t numbers =
      kBlockTokens * (2 * std::int64_t{shape.key_dim} + shape.value_dim + 2);
  return round_up(static_cast<std::size_t>(numbers) * sizeof(float), std::size_t{64});
}

// A layer's part of the state before a run; null pointers stand for zeros.
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

class DeltaNet {
 public:
  DeltaNet(const DeltaContext& context, Rows& mixed, const Rows& gates, const BatchView& batch,
           const DeltaShape& shape, const RowsFor& out)
      : context_(context),
        mixed_(mixed),
        gates_(gates),
        batch_(batch),
        shape_(shape),
        out_(out),
        all_(shape.whole()),
        group_(shape.group()),
        query_gain_(static_cast<std::size_t>(shape.key_dim), gain(2)),
        key_gain_(static_cast<std::size_t>(shape.key_dim), gain(1)),
        inputs_{mixed, 0, shape.channels(), shape.taps},
        chains_(chains_of(batch)) {}

  // A task is a key head with its value heads. After all tasks, whole rows are written.
  void run() {
    if (shape_.key_heads == 0) return;
    const std::int64_t heads = shape_.key_heads;
    const std::int64_t state_values = batch_.tokens * recurrent_numbers(shape_);
    run_tasks(context_.pool, std::ssize(chains_) * heads, state_values,
              [this, heads](std::int64_t task, int worker) {
                const auto head = static_cast<int>(task % heads);
                for (const SequenceRun& run : chains_[static_cast<std::size_t>(task / heads)]) {
                  one_head(run, head, scratch_of(worker));
                }
              });
    bad_.check("input of the delta net");
    write_rows(context_, mixed_, shape_.channels(), batch_.tokens, "output of the delta net", out_);
  }

 private:
  // An RMS norm with this gain computes l2(x) = x / sqrt(mean + eps / d) / sqrt(d). For queries
  // `roots` is 2, which adds the factor 1 / sqrt(d).
  float gain(int roots) const {
    return static_cast<float>(std::pow(static_cast<double>(shape_.key_dim), -0.5 * roots));
  }

  DeltaScratch scratch_of(int worker) const {
    const auto at = static_cast<std::size_t>(worker) * worker_bytes(shape_);
    DeltaScratch scratch;
    scratch.query = reinterpret_cast<float*>(context_.scratch.data() + at);
    scratch.key = scratch.query + kBlockTokens * shape_.key_dim;
    scratch.value = scratch.key + kBlockTokens * shape_.key_dim;
    scratch.alpha = scratch.value + kBlockTokens * shape_.value_dim;
    scratch.beta = scratch.alpha + kBlockTokens;
    return scratch;
  }

  float* row(std::int64_t row) const { return mixed_.values + row * mixed_.value_stride; }

  // The first convolution channel of a head's queries, keys or values.
  std::int64_t query_at(int head) const { return std::int64_t{head} * shape_.key_dim; }
  std::int64_t key_at(int head) const { return shape_.keys() + query_at(head); }
  std::int64_t value_at(int head) const {
    return 2 * shape_.keys() + std::int64_t{head} * shape_.value_dim;
  }

  // Convolution weights of a channel of this rank; the array has the channels of all ranks' heads.
  const float* taps_of(std::int64_t channel) const {
    const std::int64_t first = std::int64_t{shape_.first_key_head} * shape_.key_dim;
    if (channel < shape_.keys()) return shape_.conv + first + channel;
    if (channel < 2 * shape_.keys()) {
      return shape_.conv + all_.keys() + first + channel - shape_.keys();
    }
    return shape_.conv + 2 * all_.keys() +
           std::int64_t{shape_.first_value_head()} * shape_.value_dim + channel - 2 * shape_.keys();
  }

  void one_head(const SequenceRun& run, int head, const DeltaScratch& scratch) {
    const StateBefore from = state_before(run, shape_);
    const StateAfter to = state_after(run, shape_);
    for (std::int64_t first = 0; first < run.rows; first += kBlockTokens) {
      const Block block = {run, first, std::min(kBlockTokens, run.rows - first)};
      const StateBefore state = first == 0 ? from : StateBefore{to.recurrent, from.inputs};
      convolve(block, from, query_at(head), shape_.key_dim, scratch.query);
      convolve(block, from, key_at(head), shape_.key_dim, scratch.key);
      normalize(block, query_gain_, scratch.query);
      normalize(block, key_gain_, scratch.key);
      for (int value = head * group_; value < (head + 1) * group_; ++value) {
        convolve(block, from, value_at(value), shape_.value_dim, scratch.value);
        open_gates(block, value, scratch);
        recur(block, state, to, value, scratch);
        finish(block, value, scratch);
      }
    }
    const auto keep = [&](std::int64_t channel, std::int64_t count) {
      inputs_.keep(run, from.inputs, to.inputs, channel, count);
    };
    keep(query_at(head), shape_.key_dim);
    keep(key_at(head), shape_.key_dim);
    keep(value_at(head * group_), std::int64_t{group_} * shape_.value_dim);
  }

  // Neighbouring tokens of a run.
  struct Block {
    const SequenceRun& run;
    std::int64_t first = 0;
    std::int64_t tokens = 0;

    std::int64_t row(std::int64_t i) const { return run.first_row + first + i; }
  };

  // Convolves `count` channels of the block's tokens, with SiLU. Values that are not finite are
  // reported, because they would never leave the state.
  void convolve(const Block& block, const StateBefore& from, std::int64_t channel,
                std::int64_t count, float* out) {
    for (std::int64_t i = 0; i < block.tokens; ++i) {
      const std::int64_t token = block.first + i;
      if (!std::isfinite(context_.rows.absmax(row(block.row(i)) + channel, count))) {
        bad_.report(block.row(i));
      }
      const auto inputs = inputs_.taps_at(block.run, from.inputs, channel, token, zeros_.data());
      context_.kernels.convolve(inputs.data(), taps_of(channel), all_.channels(), shape_.taps, true,
                                count, out + i * count);
    }
  }

  void normalize(const Block& block, const std::vector<float>& gains, float* heads) const {
    const std::int64_t dims = shape_.key_dim;
    const float eps = kL2Eps / static_cast<float>(dims);
    for (std::int64_t i = 0; i < block.tokens; ++i) {
      context_.rows.rms_norm(heads + i * dims, gains.data(), eps, dims, heads + i * dims);
    }
  }

  // Computes beta and alpha from b and a.
  void open_gates(const Block& block, int head, const DeltaScratch& scratch) {
    const int of_all = shape_.first_value_head() + head;
    const float rate = leq_exp(shape_.a_log[of_all]);
    for (std::int64_t i = 0; i < block.tokens; ++i) {
      const float* gates = gates_.values + block.row(i) * gates_.value_stride;
      const float b = gates[of_all], a = gates[all_.value_heads + of_all];
      if (!std::isfinite(b) || !std::isfinite(a)) bad_.report(block.row(i));
      scratch.beta[i] = sigmoid(b);
      scratch.alpha[i] = leq_exp(-(rate * softplus(a + shape_.dt_bias[of_all])));
    }
  }

  // Rows that a head reads for the next block of tokens: q, k, v and z, which are far apart.
  static constexpr std::size_t kStreams = 4;
  struct Ahead {
    std::array<const float*, kStreams> rows = {};
    std::array<int, kStreams> bytes = {};
  };
  Ahead ahead_of(const Block& block, int head) const {
    if (block.first + 2 * kBlockTokens > block.run.rows) return {};
    const float* next = row(block.row(kBlockTokens));
    const int key_head = head / group_;
    const auto wide = [](int dims) { return dims * static_cast<int>(sizeof(float)); };
    return {{next + query_at(key_head), next + key_at(key_head), next + value_at(head),
             next + shape_.channels() + std::int64_t{head} * shape_.value_dim},
            {wide(shape_.key_dim), wide(shape_.key_dim), wide(shape_.value_dim),
             wide(shape_.value_dim)}};
  }

  // Runs the recurrence over a block; scratch.value holds v before and o after.
  void recur(const Block& block, const StateBefore& from, const StateAfter& to, int head,
             const DeltaScratch& scratch) const {
    const std::int64_t first = std::int64_t{head} * shape_.key_dim * shape_.value_dim;
    DeltaBlock part;
    part.query = scratch.query;
    part.key = scratch.key;
    part.alpha = scratch.alpha;
    part.beta = scratch.beta;
    part.tokens = block.tokens;
    part.value_stride = shape_.value_dim;
    part.key_dim = shape_.key_dim;
    part.fetch_stride = mixed_.value_stride;
    const Ahead ahead = ahead_of(block, head);
    for (int column = 0; column < shape_.value_dim; column += kDeltaColumns) {
      const std::size_t stream = static_cast<std::size_t>(column / kDeltaColumns) % kStreams;
      part.fetch = ahead.rows[stream];
      part.fetch_bytes = ahead.bytes[stream];
      part.columns = std::min(kDeltaColumns, shape_.value_dim - column);
      part.value = scratch.value + column;
      const std::int64_t at = first + std::int64_t{column} * shape_.key_dim;
      part.to = to.recurrent + at;
      part.from = from.recurrent == nullptr ? part.to : from.recurrent + at;
      const std::int64_t end = at + std::int64_t{part.columns} * shape_.key_dim;
      const bool more = from.recurrent != nullptr && end < recurrent_numbers(shape_);
      part.next_state = more ? from.recurrent + end : nullptr;
      if (from.recurrent == nullptr) {
        std::fill_n(part.to, std::int64_t{part.columns} * shape_.key_dim, 0.0f);
      }
      context_.kernels.recur(part);
    }
  }

  // Replaces z by rms_norm(o) * silu(z).
  void finish(const Block& block, int head, const DeltaScratch& scratch) {
    const std::int64_t dims = shape_.value_dim;
    for (std::int64_t i = 0; i < block.tokens; ++i) {
      float* o = scratch.value + i * dims;
      float* z = row(block.row(i)) + shape_.channels() + head * dims;
      if (!std::isfinite(context_.rows.absmax(z, dims))) bad_.report(block.row(i));
      context_.rows.rms_norm(o, shape_.norm.gain, shape_.norm.eps, dims, o);
      context_.rows.gated[0](z, o, dims, z);  // silu
    }
  }

  const DeltaContext& context_;
  Rows& mixed_;
  const Rows& gates_;
  const BatchView& batch_;
  const DeltaShape& shape_;
  const RowsFor& out_;
  DeltaShape all_;                            // the shape of all ranks' heads
  int group_;                                 // value heads per key head
  std::vector<float> query_gain_, key_gain_;  // [d_k]
  std::vector<float> zeros_ = std::vector<float>(static_cast<std::size_t>(widest_head(shape_)));
  ConvInputs inputs_;
  std::vector<std::vector<SequenceRun>> chains_;
  FirstBadRow bad_;
};

}  // namespace

std::size_t delta_scratch_bytes(int threads, const DeltaShape& shape) {
  return static_cast<std::size_t>(threads) * worker_bytes(shape);
}

void delta_net(const DeltaContext& context, Rows& mixed, const Rows& gates, const BatchView& batch,
               const DeltaShape& shape, const RowsFor& out) {
  ensure(shape.taps <= kMaxTaps, "delta net: ", shape.taps, " taps");
  ensure(context.scratch.size() >= delta_scratch_bytes(context.pool.threads(), shape),
         "delta net: scratch of ", context.scratch.size(), " bytes, expected ",
         delta_scratch_bytes(context.pool.threads(), shape));
  DeltaNet(context, mixed, gates, batch, shape, out).run();
}

}  // namespace leq::cpu
