// Random texts for Gated DeltaNet: their outputs are computed on the device in any steps, and by
// the formulas in double (backend/operations.h). bench/gpu uses this file without GoogleTest.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "base/error.h"
#include "cuda/kernels/delta/delta.h"
#include "device_memory.h"

namespace leq::LEQ_GPU {

struct DeltaCase {
  int key_heads, value_heads, key_dim, value_dim, taps;

  int keys() const { return key_heads * key_dim; }
  int values() const { return value_heads * value_dim; }
  int channels() const { return 2 * keys() + values(); }
  int width() const { return channels() + values(); }
  std::size_t state_numbers() const {
    return static_cast<std::size_t>(key_dim * values() + (taps - 1) * channels());
  }
};

// The tolerance for f32 chains through a recurrence, compared with double; outputs are at most
// about 10.
inline constexpr double kDeltaTolerance = 2e-4;
inline constexpr float kDeltaNormEps = 1e-6f;

struct DeltaPiece {
  int sequence, rows;
};
using DeltaStep = std::vector<DeltaPiece>;

inline void append(std::vector<float>& to, const std::vector<float>& from, int first, int rows,
                   int width) {
  to.insert(to.end(), from.begin() + std::ptrdiff_t{first} * width,
            from.begin() + std::ptrdiff_t{first + rows} * width);
}

// Appends the rows of a step to those of their sequences.
inline void add_rows(const DeltaStep& step, int width, const std::vector<float>& rows,
                     std::vector<std::vector<float>>& all) {
  int row = 0;
  for (const DeltaPiece& piece : step) {
    append(all[static_cast<std::size_t>(piece.sequence)], rows, row, piece.rows, width);
    row += piece.rows;
  }
}

// Calls launch(step, runs, row_runs) for each step. A sequence's states alternate between
// state(sequence, 0) and state(sequence, 1).
template <class State, class Launch>
void each_step(std::size_t sequences, const std::vector<DeltaStep>& steps, const State& state,
               const Launch& launch) {
  const auto name = [](std::uint32_t(&halves)[2], float* of_state) {
    const auto address = reinterpret_cast<std::uintptr_t>(of_state);
    halves[0] = static_cast<std::uint32_t>(address & 0xffffffffu);
    halves[1] = static_cast<std::uint32_t>(address >> 32);
  };
  std::vector<int> done(sequences), current(sequences, -1);
  for (const DeltaStep& step : steps) {
    std::vector<AttentionRun> runs;
    std::vector<std::int32_t> row_runs;
    std::map<int, int> last;  // last run of each sequence in this step
    for (const DeltaPiece& piece : step) {
      const auto s = static_cast<std::size_t>(piece.sequence);
      AttentionRun run;
      run.first_row = static_cast<std::int32_t>(row_runs.size());
      run.rows = piece.rows;
      run.first_position = done[s];
      const int index = static_cast<int>(runs.size()), to = current[s] == 0 ? 1 : 0;
      if (last.contains(piece.sequence)) {
        run.previous_run = last[piece.sequence];
        runs[static_cast<std::size_t>(run.previous_run)].next_run = index;
        name(run.state_from, state(s, to));
      } else if (current[s] >= 0) {
        name(run.state_from, state(s, current[s]));
      }
      name(run.state_to, state(s, to));
      last[piece.sequence] = index;
      runs.push_back(run);
      row_runs.insert(row_runs.end(), static_cast<std::size_t>(piece.rows), index);
      done[s] += piece.rows;
    }
    for (const auto& [sequence, index] : last) {
      int& now = current[static_cast<std::size_t>(sequence)];
      now = now == 0 ? 1 : 0;
    }
    launch(step, runs, row_runs);
  }
}

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }

// Each token has DeltaCase::width() inputs and 2 * value_heads gates.
struct DeltaInputs {
  std::vector<std::vector<float>> mixed, gates;  // one for each sequence
  std::vector<float> conv, a_log, dt_bias, gain;
};

class DeltaText {
 public:
  DeltaText(const DeltaCase& c, std::vector<int> lengths) : c_(c), lengths_(std::move(lengths)) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::size_t count, float scale) {
      std::vector<float> values(count);
      for (float& value : values) value = scale * normal(random);
      return values;
    };
    for (const int length : lengths_) {
      in_.mixed.push_back(fill(static_cast<std::size_t>(length * c.width()), 1));
      in_.gates.push_back(fill(static_cast<std::size_t>(length * 2 * c.value_heads), 1));
    }
    in_.conv = fill(static_cast<std::size_t>(c.taps * c.channels()), 0.5f);
    in_.a_log = fill(static_cast<std::size_t>(c.value_heads), 0.5f);
    in_.dt_bias = fill(static_cast<std::size_t>(c.value_heads), 0.5f);
    in_.gain = fill(static_cast<std::size_t>(c.value_dim), 1);
  }

  OutputCodes codes;  // of the outputs of a step's rows

  const DeltaCase& sizes() const { return c_; }
  const DeltaInputs& inputs() const { return in_; }

  // Outputs of each sequence, [length][values].
  std::vector<std::vector<float>> run(const std::vector<DeltaStep>& steps,
                                      bool exact = false) const {
    const DeviceArray<float> conv(in_.conv), a_log(in_.a_log), dt_bias(in_.dt_bias), gain(in_.gain);
    // In a state, this many bytes of other layers precede this layer's part.
    constexpr std::size_t kBefore = 48;
    const std::size_t numbers = kBefore + c_.state_numbers();
    const DeviceArray<float> states(std::vector<float>(2 * lengths_.size() * numbers, NAN));
    const auto state = [&](std::size_t sequence, int which) {
      return states.data() + (2 * sequence + static_cast<std::size_t>(which)) * numbers;
    };
    std::vector<std::vector<float>> all(lengths_.size());
    each_step(
        lengths_.size(), steps, state,
        [&](const DeltaStep& step, const std::vector<AttentionRun>& runs,
            const std::vector<std::int32_t>& row_runs) {
          std::vector<float> mixed, gates;
          for (std::size_t i = 0; i < step.size(); ++i) {
            const auto s = static_cast<std::size_t>(step[i].sequence);
            const int first = runs[i].first_position;
            append(mixed, in_.mixed[s], first, step[i].rows, c_.width());
            append(gates, in_.gates[s], first, step[i].rows, 2 * c_.value_heads);
          }
          add_rows(step, c_.values(),
                   launch(runs, row_runs, mixed, gates, conv, a_log, dt_bias, gain, kBefore, exact),
                   all);
        });
    return all;
  }

  // Evaluates the formulas token by token in double.
  std::vector<double> in_double(std::size_t sequence) const {
    std::vector<std::vector<double>> s(
        static_cast<std::size_t>(c_.value_heads),
        std::vector<double>(static_cast<std::size_t>(c_.key_dim * c_.value_dim)));
    std::vector<double> out;
    for (int t = 0; t < lengths_[sequence]; ++t) {
      const std::vector<double> c = convolved(sequence, t);
      for (int h = 0; h < c_.value_heads; ++h) {
        const int key_head = h / (c_.value_heads / c_.key_heads);
        const auto q = normed(c, key_head * c_.key_dim, 1 / std::sqrt(double{1} * c_.key_dim));
        const auto k = normed(c, c_.keys() + key_head * c_.key_dim, 1);
        const float* const gates =
            in_.gates[sequence].data() + static_cast<std::size_t>(t * 2 * c_.value_heads);
        const auto head = static_cast<std::size_t>(h);
        const double beta = sigmoid(gates[h]);
        const double alpha =
            std::exp(-std::exp(double{in_.a_log[head]}) *
                     std::log1p(std::exp(double{gates[c_.value_heads + h]} + in_.dt_bias[head])));
        std::vector<double> o;
        for (int j = 0; j < c_.value_dim; ++j) {
          const auto at = [&](int i) -> double& {
            return s[head][static_cast<std::size_t>(i * c_.value_dim + j)];
          };
          double memory = 0, sum = 0;
          for (int i = 0; i < c_.key_dim; ++i)
            memory += alpha * at(i) * k[static_cast<std::size_t>(i)];
          const double v = c[static_cast<std::size_t>(2 * c_.keys() + h * c_.value_dim + j)];
          const double u = beta * (v - memory);
          for (int i = 0; i < c_.key_dim; ++i) {
            at(i) = alpha * at(i) + k[static_cast<std::size_t>(i)] * u;
            sum += at(i) * q[static_cast<std::size_t>(i)];
          }
          o.push_back(sum);
        }
        double squares = 0;
        for (const double x : o) squares += x * x / c_.value_dim;
        const float* const z =
            in_.mixed[sequence].data() +
            static_cast<std::size_t>(t * c_.width() + c_.channels() + h * c_.value_dim);
        for (int j = 0; j < c_.value_dim; ++j) {
          const auto i = static_cast<std::size_t>(j);
          out.push_back(o[i] / std::sqrt(squares + kDeltaNormEps) * in_.gain[i] * silu(z[j]));
        }
      }
    }
    return out;
  }

 private:
  std::vector<float> launch(const std::vector<AttentionRun>& runs,
                            const std::vector<std::int32_t>& row_runs,
                            const std::vector<float>& mixed, const std::vector<float>& gates,
                            const DeviceArray<float>& conv, const DeviceArray<float>& a_log,
                            const DeviceArray<float>& dt_bias, const DeviceArray<float>& gain,
                            std::size_t before, bool exact) const {
    const DeviceArray<AttentionRun> runs_there(runs);
    const DeviceArray<std::int32_t> row_runs_there(row_runs);
    const DeviceArray<float> mixed_there(mixed), gates_there(gates);
    const std::size_t rows = row_runs.size();
    const DeviceArray<float> out(rows * static_cast<std::size_t>(c_.values()));
    const auto tokens = static_cast<std::int64_t>(rows);
    const DeviceArray<float> scratch(
        static_cast<std::size_t>(delta_rows_numbers(tokens, c_.channels(), c_.value_heads) +
                                 delta_chunks_numbers(tokens, c_.value_heads)));
    const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{kNoFault});
    DeltaArguments a;
    a.mixed = {mixed_there.data(), c_.width()};
    a.gates = {gates_there.data(), 2 * c_.value_heads};
    a.out = {out.data(), c_.values()};
    a.batch.tokens = tokens;
    for (const AttentionRun& run : runs) {
      a.batch.longest_run = std::max<std::int64_t>(a.batch.longest_run, run.rows);
    }
    a.batch.runs = runs_there.data();
    a.batch.run_count = static_cast<int>(runs.size());
    a.batch.row_runs = row_runs_there.data();
    a.key_heads = c_.key_heads;
    a.value_heads = c_.value_heads;
    a.key_dim = c_.key_dim;
    a.value_dim = c_.value_dim;
    a.taps = c_.taps;
    a.gate_stride = c_.value_heads;
    for (int part = 0; part < 3; ++part) a.conv[part] = conv.data() + part * c_.keys();
    a.conv_stride = c_.channels();
    a.a_log = a_log.data();
    a.dt_bias = dt_bias.data();
    a.norm_gain = gain.data();
    a.norm_eps = kDeltaNormEps;
    a.l2_eps = 1e-6f / static_cast<float>(c_.key_dim);
    a.key_gain = static_cast<float>(1 / std::sqrt(double{1} * c_.key_dim));
    a.query_gain = static_cast<float>(1 / (double{1} * c_.key_dim));
    a.state_at = static_cast<std::int64_t>(before * sizeof(float));
    a.scratch = scratch.data();
    a.fault = {fault.data(), 1};
    a.exact = exact;
    a.codes = codes;
    write_late({mixed_there.bytes(), gates_there.bytes()});
    launch_delta_net(a, test_stream());
    require(fault.host()[0] == kNoFault, "delta net: a row of finite numbers is reported");
    return out.host();
  }

  std::vector<double> convolved(std::size_t sequence, int t) const {
    std::vector<double> c;
    for (int channel = 0; channel < c_.channels(); ++channel) {
      double sum = 0;
      for (int tap = 0; tap < c_.taps; ++tap) {
        const int from = t - (c_.taps - 1) + tap;
        if (from < 0) continue;
        sum += double{in_.conv[static_cast<std::size_t>(tap * c_.channels() + channel)]} *
               in_.mixed[sequence][static_cast<std::size_t>(from * c_.width() + channel)];
      }
      c.push_back(silu(sum));
    }
    return c;
  }
  std::vector<double> normed(const std::vector<double>& c, int first, double factor) const {
    double squares = 0;
    std::vector<double> x;
    for (int i = 0; i < c_.key_dim; ++i) x.push_back(c[static_cast<std::size_t>(first + i)]);
    for (const double value : x) squares += value * value;
    for (double& value : x) value = value / std::sqrt(squares + 1e-6) * factor;
    return x;
  }

  DeltaCase c_;
  std::vector<int> lengths_;
  DeltaInputs in_;
};

}  // namespace leq::LEQ_GPU
