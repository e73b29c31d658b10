// Gated DeltaNet compared with its formulas in double (backend/decoder_parts.h), for texts fed in
// steps of several sequences. The bits must not depend on how a text is split, except that prompts
// computed in chunks must be split at multiples of 64.
#include "cuda/kernels/delta/delta.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "cuda/kernels/launch.h"
#include "device_memory.h"

namespace leq::LEQ_GPU {
namespace {

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

// The tolerance for f32 chains through a recurrence, compared with double.
constexpr double kTolerance = 2e-4;
constexpr float kNormEps = 1e-6f;

struct Piece {
  int sequence, rows;
};
using Step = std::vector<Piece>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }

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
      mixed_.push_back(fill(static_cast<std::size_t>(length * c.width()), 1));
      gates_.push_back(fill(static_cast<std::size_t>(length * 2 * c.value_heads), 1));
    }
    conv_ = fill(static_cast<std::size_t>(c.taps * c.channels()), 0.5f);
    a_log_ = fill(static_cast<std::size_t>(c.value_heads), 0.5f);
    dt_bias_ = fill(static_cast<std::size_t>(c.value_heads), 0.5f);
    gain_ = fill(static_cast<std::size_t>(c.value_dim), 1);
  }

  // Outputs of each sequence, [length][values].
  std::vector<std::vector<float>> run(const std::vector<Step>& steps, bool exact = false) {
    const DeviceArray<float> conv(conv_), a_log(a_log_), dt_bias(dt_bias_), gain(gain_);
    // In a state, this many bytes of other layers precede this layer's part.
    constexpr std::size_t kBefore = 48;
    const std::size_t numbers = kBefore + c_.state_numbers();
    const DeviceArray<float> states(std::vector<float>(2 * lengths_.size() * numbers, NAN));
    const auto state = [&](std::size_t sequence, int which) {
      return states.data() + (2 * sequence + static_cast<std::size_t>(which)) * numbers;
    };
    std::vector<int> done(lengths_.size()), current(lengths_.size(), -1);
    std::vector<std::vector<float>> all(lengths_.size());
    for (const Step& step : steps) {
      std::vector<AttentionRun> runs;
      std::vector<std::int32_t> row_runs;
      std::vector<float> mixed, gates;
      std::map<int, int> last;  // last run of each sequence in this step
      for (const Piece& piece : step) {
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
        append(mixed, mixed_[s], done[s], piece.rows, c_.width());
        append(gates, gates_[s], done[s], piece.rows, 2 * c_.value_heads);
        done[s] += piece.rows;
      }
      for (const auto& [sequence, index] : last) {
        int& now = current[static_cast<std::size_t>(sequence)];
        now = now == 0 ? 1 : 0;
      }
      const std::vector<float> out =
          launch(runs, row_runs, mixed, gates, conv, a_log, dt_bias, gain, kBefore, exact);
      std::size_t row = 0;
      for (const Piece& piece : step) {
        auto& to = all[static_cast<std::size_t>(piece.sequence)];
        const std::size_t count = static_cast<std::size_t>(piece.rows * c_.values());
        to.insert(to.end(), out.begin() + static_cast<std::ptrdiff_t>(row),
                  out.begin() + static_cast<std::ptrdiff_t>(row + count));
        row += count;
      }
    }
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
            gates_[sequence].data() + static_cast<std::size_t>(t * 2 * c_.value_heads);
        const auto head = static_cast<std::size_t>(h);
        const double beta = sigmoid(gates[h]);
        const double alpha =
            std::exp(-std::exp(double{a_log_[head]}) *
                     std::log1p(std::exp(double{gates[c_.value_heads + h]} + dt_bias_[head])));
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
            mixed_[sequence].data() +
            static_cast<std::size_t>(t * c_.width() + c_.channels() + h * c_.value_dim);
        for (int j = 0; j < c_.value_dim; ++j) {
          const auto i = static_cast<std::size_t>(j);
          out.push_back(o[i] / std::sqrt(squares + kNormEps) * gain_[i] * silu(z[j]));
        }
      }
    }
    return out;
  }

 private:
  static void name(std::uint32_t (&halves)[2], float* state) {
    const auto address = reinterpret_cast<std::uintptr_t>(state);
    halves[0] = static_cast<std::uint32_t>(address & 0xffffffffu);
    halves[1] = static_cast<std::uint32_t>(address >> 32);
  }
  static void append(std::vector<float>& to, const std::vector<float>& from, int first, int rows,
                     int width) {
    to.insert(to.end(), from.begin() + std::ptrdiff_t{first} * width,
              from.begin() + std::ptrdiff_t{first + rows} * width);
  }

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
    a.gates_apart = c_.value_heads;
    for (int part = 0; part < 3; ++part) a.conv[part] = conv.data() + part * c_.keys();
    a.conv_stride = c_.channels();
    a.a_log = a_log.data();
    a.dt_bias = dt_bias.data();
    a.norm_gain = gain.data();
    a.norm_eps = kNormEps;
    a.l2_eps = 1e-6f / static_cast<float>(c_.key_dim);
    a.key_gain = static_cast<float>(1 / std::sqrt(double{1} * c_.key_dim));
    a.query_gain = static_cast<float>(1 / (double{1} * c_.key_dim));
    a.state_at = static_cast<std::int64_t>(before * sizeof(float));
    a.scratch = scratch.data();
    a.fault = {fault.data(), 1};
    a.exact = exact;
    write_late({mixed_there.bytes(), gates_there.bytes()});
    launch_delta_net(a, test_stream());
    EXPECT_EQ(fault.host()[0], kNoFault);
    return out.host();
  }

  std::vector<double> convolved(std::size_t sequence, int t) const {
    std::vector<double> c;
    for (int channel = 0; channel < c_.channels(); ++channel) {
      double sum = 0;
      for (int tap = 0; tap < c_.taps; ++tap) {
        const int from = t - (c_.taps - 1) + tap;
        if (from < 0) continue;
        sum += double{conv_[static_cast<std::size_t>(tap * c_.channels() + channel)]} *
               mixed_[sequence][static_cast<std::size_t>(from * c_.width() + channel)];
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
  std::vector<std::vector<float>> mixed_, gates_;  // one for each sequence
  std::vector<float> conv_, a_log_, dt_bias_, gain_;
};

class Delta : public testing::TestWithParam<DeltaCase> {};

void expect_formulas(const DeltaText& text, const std::vector<std::vector<float>>& found) {
  for (std::size_t s = 0; s < found.size(); ++s) {
    const std::vector<double> want = text.in_double(s);
    ASSERT_EQ(found[s].size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(found[s][i], want[i], kTolerance) << "sequence " << s << ", number " << i;
    }
  }
}

TEST_P(Delta, FollowsTheFormulasWhateverTheSteps) {
  DeltaText text(GetParam(), {11, 6});
  const auto at_once = text.run({{{0, 11}, {1, 6}}});
  expect_formulas(text, at_once);
  // Tokens one by one, steps shorter than the convolution, and a sequence twice in one step.
  const std::vector<Step> cut = {
      {{0, 1}}, {{0, 2}, {1, 2}}, {{1, 1}, {0, 3}, {1, 1}}, {{0, 1}, {1, 2}, {0, 4}}};
  EXPECT_EQ(text.run(cut), at_once);
}

// Whole chunks of 64 tokens use matrix products; the remaining tokens of a prompt do not.
TEST_P(Delta, PromptsOfAnyLengthFollowTheFormulas) {
  DeltaText text(GetParam(), {1, 3, 63, 64, 65, 200});
  expect_formulas(text, text.run({{{0, 1}, {1, 3}, {2, 63}, {3, 64}, {4, 65}, {5, 200}}}));
}

TEST_P(Delta, StepsThatEndAtMultiplesOf64ChangeNoBit) {
  DeltaText text(GetParam(), {200, 130});
  const auto whole = text.run({{{0, 200}, {1, 130}}});
  EXPECT_EQ(text.run({{{0, 64}}, {{1, 128}, {0, 64}}, {{0, 72}, {1, 2}}}), whole);
  EXPECT_EQ(text.run({{{1, 64}, {0, 128}}, {{1, 64}, {0, 64}, {1, 2}}, {{0, 1}}, {{0, 7}}}), whole);
}

TEST_P(Delta, OtherStepsFollowTheFormulasToo) {
  DeltaText text(GetParam(), {200});
  expect_formulas(text, text.run({{{0, 33}}, {{0, 140}}, {{0, 27}}}));
  expect_formulas(text, text.run({{{0, 100}, {0, 100}}}));
}

TEST_P(Delta, ExactPromptsAreTheRecurrence) {
  DeltaText text(GetParam(), {130});
  const std::vector<Step> singly(130, Step{{0, 1}});
  const auto recurrence = text.run(singly);
  EXPECT_EQ(text.run({{{0, 130}}}, true), recurrence);
  EXPECT_NE(text.run({{{0, 130}}}), recurrence) << "no chunk was computed as one";
}

INSTANTIATE_TEST_SUITE_P(Shapes, Delta,
                         testing::Values(DeltaCase{1, 2, 16, 16, 4}, DeltaCase{2, 2, 24, 40, 4},
                                         DeltaCase{1, 1, 128, 72, 2}, DeltaCase{2, 6, 8, 33, 3}));

// Outputs are multiplied by sigmoid of the gates, which are in wider rows of another array.
TEST(GateOutputs, AreTimesSigmoidOfTheirGates) {
  constexpr int kTokens = 3, kWidth = 200, kOutStride = 208, kGateStride = 460, kGatesAt = 232;
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> outputs(kTokens * kOutStride), gates(kTokens * kGateStride);
  for (float& value : outputs) value = normal(random);
  for (float& value : gates) value = normal(random);
  const DeviceArray<float> out(outputs), rows(gates);
  launch_gate_outputs(
      {{out.data(), kOutStride}, {rows.data() + kGatesAt, kGateStride}, kTokens, kWidth},
      test_stream());
  const std::vector<float> found = out.host();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::size_t row = i / kOutStride, c = i % kOutStride;
    const double gate = c < kWidth ? sigmoid(gates[row * kGateStride + kGatesAt + c]) : 1;
    ASSERT_NEAR(found[i], outputs[i] * gate, 1e-5) << "row " << row << ", column " << c;
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU
