// Matmuls of f32 inputs and f32 weights on the emulator are bit-identical to the order of
// docs/numerics.md.
#include <gtest/gtest.h>

#include <functional>

#include "cuda/sim/emulator.h"
#include "float_matmul_case.h"

namespace leq::LEQ_GPU {
namespace {

// y in the documented order: lane k % 16 for ascending k; then lanes +8, +4, +2, +1; then the bias.
float chain(int columns, float bias, const std::function<float(int)>& x,
            const std::function<float(int)>& w) {
  float lanes[16] = {};
  for (int k = 0; k < columns; ++k) lanes[k % 16] = std::fma(x(k), w(k), lanes[k % 16]);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  }
  return lanes[0] + bias;
}

class FloatMatmulTest : public testing::TestWithParam<IntCase> {
 protected:
  FloatMatmulTest() { simt::schedule() = {4, simt::CopyArrival::at_wait}; }
  ~FloatMatmulTest() override { simt::schedule() = {}; }
};

TEST_P(FloatMatmulTest, EqualsTheChains) {
  const IntCase& c = GetParam();
  const Inputs x(c.tokens, c.columns);
  std::vector<FloatData> weights;
  for (const int rows : c.rows) weights.emplace_back(FloatType::f32, rows, c.columns);
  FloatMatmul a;
  for (const FloatData& w : weights) a.segments[a.segment_count++] = w.segment();
  a.tokens = c.tokens;
  a.columns = c.columns;
  a.values = x.rows();
  a.finish = c.finish;
  const std::int64_t stride = float_stride(c.outputs());
  const std::vector<float> before(static_cast<std::size_t>(c.tokens * stride), 0.25f);
  const DeviceArray<float> out(before);
  a.out = {out.data(), stride};
  write_late({x.bytes(), out.bytes()});
  launch_float_matmul(a, test_stream());
  const auto found = out.host();
  const auto value = [&](int t, std::size_t s, int row) {
    const FloatData& w = weights[s];
    return chain(
        c.columns, w.bias[static_cast<std::size_t>(row)], [&](int k) { return x.at(t, k); },
        [&](int k) { return w.numbers[static_cast<std::size_t>(row * w.stride + k)]; });
  };
  for (int t = 0; t < c.tokens; ++t) {
    int column = 0;
    for (std::size_t s = 0; s < (is_gated(c.finish) ? 1 : c.rows.size()); ++s) {
      for (int row = 0; row < c.rows[s]; ++row, ++column) {
        const auto at = static_cast<std::size_t>(t * stride + column);
        const float up = is_gated(c.finish) ? value(t, 1, row) : 0.0f;
        const float want = finished_value(c.finish, value(t, s, row), up, before[at]);
        ASSERT_EQ(found[at], want) << "token " << t << ", column " << column;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FloatMatmulTest,
                         testing::Values(IntCase{8, false, 0, 0, 1, 100, {70}},
                                         IntCase{8, false, 0, 0, 9, 333, {40, 8, 9}},
                                         IntCase{8, false, 0, 0, 3, 40, {40, 40}, Finish::swiglu},
                                         IntCase{8, false, 0, 0, 4, 257, {65}, Finish::gelu},
                                         IntCase{8, false, 0, 0, 3, 40, {40, 40}, Finish::geglu},
                                         IntCase{8, false, 0, 0, 17, 64, {31}, Finish::add},
                                         IntCase{8, false, 0, 0, 1, 2600, {5, 1}},
                                         IntCase{8, false, 0, 0, 8, 1350, {6}, Finish::add},
                                         IntCase{8, false, 0, 0, 1, 48, {7, 7}, Finish::swiglu},
                                         IntCase{
                                             8, false, 0, 0, 9, 900, {40, 40}, Finish::swiglu}));

}  // namespace
}  // namespace leq::LEQ_GPU
