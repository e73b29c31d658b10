// Compares the CPU backend's Gated DeltaNet with its formulas in double, token by token; bits must
// not depend on the instruction set, the number of threads or how a text is split into steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/random.h"

namespace leq {
namespace {

struct Layer {
  int key_heads = 2, ratio = 1, key_dim = 16, value_dim = 40, taps = 4;
  std::vector<float> conv, a_log, dt_bias, gain;

  explicit Layer(int heads, int values_of_each, int dk, int dv)
      : key_heads(heads), ratio(values_of_each), key_dim(dk), value_dim(dv) {
    Random random(77);
    const auto fill = [&](std::vector<float>& out, std::int64_t n, float size, float add) {
      out.resize(static_cast<std::size_t>(n));
      for (float& x : out) x = add + size * random.normal();
    };
    fill(conv, taps * shape().channels(), 0.5f, 0);
    fill(a_log, value_heads(), 0.7f, -1);
    fill(dt_bias, value_heads(), 1.0f, 0);
    fill(gain, value_dim, 0.2f, 1);
  }
  int value_heads() const { return key_heads * ratio; }
  DeltaShape shape() const {
    DeltaShape shape;
    shape.key_heads = key_heads;
    shape.value_heads = value_heads();
    shape.key_dim = key_dim;
    shape.value_dim = value_dim;
    shape.taps = taps;
    shape.conv = conv.data();
    shape.a_log = a_log.data();
    shape.dt_bias = dt_bias.data();
    shape.norm = {NormKind::rms, gain.data(), nullptr, 1e-6f, value_dim};
    shape.state_at = 64;
    return shape;
  }
  std::int64_t mixed_width() const { return shape().channels() + shape().values(); }
};

// The inputs at position `t` of a text.
std::vector<float> input(std::uint64_t text, std::int64_t t, std::int64_t width, int what) {
  Random random(text * 1000003 + static_cast<std::uint64_t>(t) * 7 +
                static_cast<std::uint64_t>(what));
  std::vector<float> row(static_cast<std::size_t>(width));
  for (float& x : row) x = random.normal() * 1.3f;
  return row;
}

// Evaluates the formulas of DeltaShape (operations.h) in double.
std::vector<double> naive(const Layer& layer, std::uint64_t text, std::int64_t length) {
  const DeltaShape s = layer.shape();
  const std::int64_t channels = s.channels(), dk = s.key_dim, dv = s.value_dim;
  std::vector<double> out;
  std::vector<double> state(static_cast<std::size_t>(s.value_heads * dk * dv));
  std::vector<std::vector<float>> inputs;
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  for (std::int64_t t = 0; t < length; ++t) {
    inputs.push_back(input(text, t, layer.mixed_width(), 0));
    const auto gates = input(text, t, 2 * s.value_heads, 1);
    std::vector<double> c(static_cast<std::size_t>(channels));
    for (std::int64_t ch = 0; ch < channels; ++ch) {
      double sum = 0;
      for (int j = 0; j < s.taps; ++j) {
        const std::int64_t at = t - s.taps + 1 + j;
        if (at < 0) continue;
        sum += double{s.conv[j * channels + ch]} *
               double{inputs[static_cast<std::size_t>(at)][static_cast<std::size_t>(ch)]};
      }
      c[static_cast<std::size_t>(ch)] = silu(sum);
    }
    const auto unit = [&](std::int64_t first) {
      double squares = 1e-6;
      for (std::int64_t i = 0; i < dk; ++i) squares += c[first + i] * c[first + i];
      for (std::int64_t i = 0; i < dk; ++i) c[first + i] /= std::sqrt(squares);
    };
    for (int h = 0; h < 2 * s.key_heads; ++h) unit(h * dk);
    for (int h = 0; h < s.value_heads; ++h) {
      const double* q = c.data() + h / layer.ratio * dk;
      const double* k = q + s.keys();
      const double* v = c.data() + 2 * s.keys() + h * dv;
      const double beta = 1 / (1 + std::exp(-double{gates[static_cast<std::size_t>(h)]}));
      const double a =
          double{gates[static_cast<std::size_t>(s.value_heads + h)]} + double{s.dt_bias[h]};
      const double alpha = std::exp(-std::exp(double{s.a_log[h]}) * std::log1p(std::exp(a)));
      double* S = state.data() + h * dk * dv;
      std::vector<double> o(static_cast<std::size_t>(dv));
      for (std::int64_t j = 0; j < dv; ++j) {
        double seen = 0;
        for (std::int64_t i = 0; i < dk; ++i) {
          S[i * dv + j] *= alpha;
          seen += S[i * dv + j] * k[i];
        }
        for (std::int64_t i = 0; i < dk; ++i) {
          S[i * dv + j] += k[i] * beta * (v[j] - seen);
          o[static_cast<std::size_t>(j)] += S[i * dv + j] * q[i] / std::sqrt(double(dk));
        }
      }
      double squares = 0;
      for (const double x : o) squares += x * x;
      const double r = 1 / std::sqrt(squares / static_cast<double>(dv) + 1e-6);
      for (std::int64_t j = 0; j < dv; ++j) {
        const double z = double{inputs.back()[static_cast<std::size_t>(channels + h * dv + j)]};
        out.push_back(o[static_cast<std::size_t>(j)] * r * double{s.norm.gain[j]} * silu(z));
      }
    }
  }
  return out;
}

// The next `count` positions of one text, as a part of a step.
struct Part {
  std::uint64_t text;
  std::int64_t rows;
};
using Steps = std::vector<std::vector<Part>>;

// Returns the outputs of each text; the text's states alternate between two buffers.
std::map<std::uint64_t, std::vector<float>> run(const Layer& layer, const Steps& steps, Isa isa,
                                                int threads) {
  const auto backend = make_cpu_backend({.threads = threads, .isa = isa});
  const DeltaShape shape = layer.shape();
  constexpr std::int64_t kMaxRows = 256;
  backend->memory().scratch(backend->layout().delta_scratch_bytes(kMaxRows, shape));
  Rows mixed = backend->allocate_rows(kMaxRows, layer.mixed_width(), {});
  Rows gates = backend->allocate_rows(kMaxRows, 2 * shape.value_heads, {});
  Rows out = backend->allocate_rows(kMaxRows, shape.values(), {});
  const std::size_t bytes =
      shape.state_at + sizeof(float) * static_cast<std::size_t>(delta_state_numbers(shape));
  std::map<std::uint64_t, std::array<std::vector<std::byte>, 2>> states;
  std::map<std::uint64_t, std::int64_t> fed;
  std::map<std::uint64_t, int> turn;
  std::map<std::uint64_t, std::vector<float>> found;
  for (const std::vector<Part>& step : steps) {
    std::vector<SequenceRun> runs;
    std::vector<float> inputs, gate_inputs;
    std::map<std::uint64_t, std::int64_t> before = fed;
    std::int64_t rows = 0;
    for (const Part& part : step) {
      auto& [a, b] = states[part.text];
      for (auto* one : {&a, &b}) {
        if (one->empty()) one->assign(bytes, std::byte{0xff});
      }
      SequenceRun& run = runs.emplace_back();
      run.sequence = static_cast<std::int32_t>(part.text);
      run.first_row = rows;
      run.rows = part.rows;
      run.first_position = fed[part.text];
      const int now = turn[part.text];
      run.state_to = (now == 0 ? b : a).data();
      const bool later = fed[part.text] != before[part.text];
      run.state_from = later                 ? run.state_to
                       : fed[part.text] == 0 ? nullptr
                                             : (now == 0 ? a : b).data();
      for (std::int64_t i = 0; i < part.rows; ++i, ++fed[part.text]) {
        const auto row = input(part.text, fed[part.text], layer.mixed_width(), 0);
        const auto gate = input(part.text, fed[part.text], 2 * shape.value_heads, 1);
        inputs.insert(inputs.end(), row.begin(), row.end());
        gate_inputs.insert(gate_inputs.end(), gate.begin(), gate.end());
      }
      rows += part.rows;
    }
    backend->assign(inputs, mixed);
    backend->assign(gate_inputs, gates);
    backend->delta_net(mixed, gates, {rows, runs}, shape, out);
    std::vector<float> values(static_cast<std::size_t>(rows * shape.values()));
    backend->download(out, rows, values);
    for (const SequenceRun& run : runs) {
      auto& all = found[static_cast<std::uint64_t>(run.sequence)];
      const auto* first = values.data() + run.first_row * shape.values();
      all.insert(all.end(), first, first + run.rows * shape.values());
    }
    for (auto& [text, count] : fed) turn[text] ^= count != before[text] ? 1 : 0;
  }
  return found;
}

Steps in_chunks(std::uint64_t text, std::int64_t length, std::int64_t chunk) {
  Steps steps;
  for (std::int64_t at = 0; at < length; at += chunk) {
    steps.push_back({{text, std::min(chunk, length - at)}});
  }
  return steps;
}

TEST(DeltaNet, EqualsItsFormulasInDouble) {
  for (const int ratio : {1, 2, 3}) {
    const Layer layer(2, ratio, 16 + 8 * ratio, 24 + 8 * ratio);
    for (const std::int64_t length : {1, 3, 4, 5, 63, 64, 65, 200}) {
      const auto want = naive(layer, 1, length);
      const auto have = run(layer, in_chunks(1, length, 256), chosen_isa(), 2).at(1);
      ASSERT_EQ(have.size(), want.size());
      double worst = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        worst = std::max(worst, std::abs(double{have[i]} - want[i]));
      }
      EXPECT_LT(worst, 5e-5) << ratio << " value heads a key head, " << length << " tokens";
    }
  }
}

TEST(DeltaNet, BitsDoNotDependOnStepsNeighboursThreadsOrIsa) {
  for (const int ratio : {1, 3}) {
    const Layer layer(2, ratio, 33, 70);  // not a multiple of any register
    const auto want = run(layer, in_chunks(1, 200, 256), Isa::portable, 1).at(1);
    const auto other = run(layer, in_chunks(2, 90, 256), Isa::portable, 1).at(2);
    for (const Isa isa : supported_isas()) {
      for (const int threads : {1, 3}) {
        for (const std::int64_t chunk : {1, 3, 64, 200}) {
          if (isa == Isa::portable && threads == 1) continue;
          EXPECT_EQ(run(layer, in_chunks(1, 200, chunk), isa, threads).at(1), want)
              << isa_name(isa) << ", " << threads << " threads, chunks of " << chunk;
        }
        // Here a step contains two texts of different lengths, or one text twice.
        const auto both =
            run(layer, {{{1, 60}, {2, 7}}, {{2, 80}}, {{1, 1}, {2, 3}, {1, 139}}}, isa, threads);
        EXPECT_EQ(both.at(1), want) << isa_name(isa);
        EXPECT_EQ(both.at(2), other) << isa_name(isa);
      }
    }
  }
}

TEST(DeltaNet, RefusesRowsThatAreNotFinite) {
  const Layer layer(1, 1, 8, 8);
  const auto backend = make_cpu_backend({.threads = 1});
  const DeltaShape shape = layer.shape();
  backend->memory().scratch(backend->layout().delta_scratch_bytes(4, shape));
  Rows mixed = backend->allocate_rows(4, layer.mixed_width(), {});
  Rows gates = backend->allocate_rows(4, 2, {});
  Rows out = backend->allocate_rows(4, shape.values(), {});
  std::vector<float> inputs(static_cast<std::size_t>(2 * layer.mixed_width()), 0.5f);
  inputs.back() = NAN;
  backend->assign(inputs, mixed);
  backend->assign(std::vector<float>(4, 0.5f), gates);
  std::vector<std::byte> state(4096);
  SequenceRun run;
  run.rows = 2;
  run.state_to = state.data();
  EXPECT_THROW(backend->delta_net(mixed, gates, {2, {&run, 1}}, shape, out), Error);
}

}  // namespace
}  // namespace leq
