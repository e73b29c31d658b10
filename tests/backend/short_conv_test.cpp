// Compares the CPU backend's short convolutions with their formulas in double; bits must not depend
// on the instruction set, the number of threads or how a text is split into steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/random.h"
#include "errors.h"

namespace leq {
namespace {

struct Text {
  std::int64_t channels, length;
  int taps;
  std::vector<float> conv, inputs;  // [taps][channels]; [length][3 channels]

  Text(std::int64_t channels_of_all, int taps_of_all, std::int64_t tokens)
      : channels(channels_of_all), length(tokens), taps(taps_of_all) {
    Random random(77);
    const auto fill = [&](std::vector<float>& out, std::int64_t n) {
      out.resize(static_cast<std::size_t>(n));
      for (float& x : out) x = random.normal();
    };
    fill(conv, taps * channels);
    fill(inputs, 3 * channels * length);
  }

  double in(std::int64_t t, std::int64_t part, std::int64_t c) const {
    return double{inputs[static_cast<std::size_t>((3 * t + part) * channels + c)]};
  }
  // The formulas of ShortConvShape (operations.h).
  double naive(std::int64_t t, std::int64_t c) const {
    double sum = 0;
    for (int j = 0; j < taps; ++j) {
      const std::int64_t at = t - taps + 1 + j;
      if (at < 0) continue;
      sum += double{conv[static_cast<std::size_t>(j * channels + c)]} * in(at, 0, c) * in(at, 2, c);
    }
    return in(t, 1, c) * sum;
  }

  // The outputs of channels [first, last), as a rank computes them. Each step is divided into runs
  // of at most `run` rows. The state is read and written in place from the second step on.
  std::vector<float> outputs(std::int64_t chunk, std::int64_t run, Isa isa, int threads,
                             std::int64_t first, std::int64_t last) const {
    const auto backend = make_cpu_backend({.threads = threads, .isa = isa});
    ShortConvShape shape;
    shape.channels = last - first;
    shape.taps = taps;
    shape.conv = conv.data() + first;
    shape.conv_stride = channels;
    shape.state_at = 64;
    const auto numbers = static_cast<std::size_t>(short_conv_state_numbers(shape));
    std::vector<std::byte> state(shape.state_at + sizeof(float) * numbers, std::byte{0xff});
    Rows mixed = backend->allocate_rows(length, 3 * shape.channels, {});
    Rows out = backend->allocate_rows(length, shape.channels, {});
    std::vector<float> all;
    for (std::int64_t at = 0; at < length; at += chunk) {
      const std::int64_t rows = std::min(chunk, length - at);
      std::vector<float> step;
      for (std::int64_t i = 0; i < 3 * rows; ++i) {
        const auto row = inputs.begin() + (3 * at + i) * channels;
        step.insert(step.end(), row + first, row + last);
      }
      std::vector<SequenceRun> runs;
      for (std::int64_t begin = 0; begin < rows; begin += run) {
        SequenceRun one;
        one.first_row = begin;
        one.rows = std::min(run, rows - begin);
        one.first_position = at + begin;
        one.state_from = at + begin == 0 ? nullptr : state.data();
        one.state_to = state.data();
        runs.push_back(one);
      }
      backend->assign(step, mixed);
      backend->short_conv(mixed, {rows, runs}, shape, out);
      std::vector<float> values(static_cast<std::size_t>(rows * shape.channels));
      backend->download(out, rows, values);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
};

TEST(ShortConv, EqualsItsFormulasInDouble) {
  for (const int taps : {2, 3, 7}) {
    const Text text(150, taps, 40);
    const auto have = text.outputs(40, 40, chosen_isa(), 2, 0, 150);
    for (std::int64_t t = 0; t < text.length; ++t) {
      for (std::int64_t c = 0; c < text.channels; ++c) {
        ASSERT_NEAR(have[static_cast<std::size_t>(t * text.channels + c)], text.naive(t, c), 1e-4);
      }
    }
  }
}

TEST(ShortConv, BitsDoNotDependOnStepsRunsThreadsOrIsa) {
  const Text text(333, 3, 50);
  const auto want = text.outputs(50, 50, Isa::portable, 1, 0, 333);
  for (const Isa isa : supported_isas()) {
    for (const int threads : {1, 3}) {
      for (const std::int64_t chunk : {1, 2, 7, 50}) {
        EXPECT_EQ(text.outputs(chunk, chunk, isa, threads, 0, 333), want) << isa_name(isa) << chunk;
      }
      EXPECT_EQ(text.outputs(50, 1, isa, threads, 0, 333), want) << isa_name(isa);
      EXPECT_EQ(text.outputs(20, 3, isa, threads, 0, 333), want) << isa_name(isa);
    }
  }
}

TEST(ShortConv, ARankComputesItsChannels) {
  const Text text(333, 3, 9);
  const auto want = text.outputs(9, 9, chosen_isa(), 1, 0, 333);
  const auto have = text.outputs(4, 4, chosen_isa(), 1, 128, 256);
  for (std::int64_t t = 0; t < text.length; ++t) {
    for (std::int64_t c = 128; c < 256; ++c) {
      ASSERT_EQ(have[static_cast<std::size_t>(t * 128 + c - 128)],
                want[static_cast<std::size_t>(t * 333 + c)]);
    }
  }
}

TEST(ShortConv, RefusesRowsThatAreNotFinite) {
  for (const std::size_t part : {0, 1, 2}) {
    Text text(5, 3, 4);
    text.inputs[15 + part * 5] = NAN;
    test::expect_error([&] { text.outputs(4, 4, chosen_isa(), 1, 0, 5); },
                       {"input of the short convolution", "1"});
  }
}

}  // namespace
}  // namespace leq
