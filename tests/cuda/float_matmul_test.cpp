// Matmuls of f32 inputs on the emulator: float weights and codes, equal to the bit to the chains of
// docs/numerics.md.
#include <gtest/gtest.h>

#include <functional>

#include "cuda/sim/emulator.h"
#include "int_matmul_case.h"

namespace leq::LEQ_GPU {
namespace {

// Rows of inputs on the host and on the device, pads 0.
class Inputs {
 public:
  Inputs(int tokens, int columns)
      : stride_(float_stride(columns)), values_(static_cast<std::size_t>(tokens * stride_)) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (int t = 0; t < tokens; ++t) {
      for (int k = 0; k < columns; ++k)
        values_[static_cast<std::size_t>(t * stride_ + k)] = normal(random);
    }
    there_ = std::make_unique<DeviceArray<float>>(values_);
  }
  FloatRows rows() const { return {there_->data(), stride_}; }
  float at(int token, int k) const {
    return values_[static_cast<std::size_t>(token * stride_ + k)];
  }

 private:
  std::int64_t stride_;
  std::vector<float> values_;
  std::unique_ptr<DeviceArray<float>> there_;
};

// y of the chain: lane k % 16, k ascending; then lanes +8, +4, +2, +1; then the bias.
float chain(int columns, float bias, const std::function<float(int)>& x,
            const std::function<float(int)>& w) {
  float lanes[16] = {};
  for (int k = 0; k < columns; ++k) lanes[k % 16] = std::fma(x(k), w(k), lanes[k % 16]);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  }
  return lanes[0] + bias;
}

// Compares every number of `found` with what `value(token, segment, row)` and the finish give.
void expect_outputs(const IntCase& c, std::int64_t stride, const std::vector<float>& before,
                    const std::vector<float>& found,
                    const std::function<float(int, std::size_t, int)>& value) {
  for (int t = 0; t < c.tokens; ++t) {
    int column = 0;
    for (std::size_t s = 0; s < (c.finish == Finish::swiglu ? 1 : c.rows.size()); ++s) {
      for (int row = 0; row < c.rows[s]; ++row, ++column) {
        const auto at = static_cast<std::size_t>(t * stride + column);
        const float up = c.finish == Finish::swiglu ? value(t, 1, row) : 0.0f;
        const float want = finished_value(c.finish, value(t, s, row), up, before[at]);
        ASSERT_EQ(found[at], want) << "token " << t << ", column " << column;
      }
    }
  }
}

struct FloatCase {
  FloatType type;
  IntCase shape;  // tokens, columns, rows and finish of it
};

class FloatMatmulTest : public testing::TestWithParam<FloatCase> {
 protected:
  FloatMatmulTest() { simt::schedule() = {4, simt::CopyLands::at_wait}; }
  ~FloatMatmulTest() override { simt::schedule() = {}; }
};

// A float weight with a bias.
struct FloatData {
  FloatData(FloatType kind, int rows, int columns) : type(kind), stride(float_stride(columns)) {
    std::mt19937 random(static_cast<unsigned>(rows));
    std::normal_distribution<float> normal;
    numbers.resize(static_cast<std::size_t>(rows * stride));
    bias.resize(static_cast<std::size_t>(rows));
    std::vector<std::uint16_t> halves(numbers.size());
    for (int row = 0; row < rows; ++row) {
      bias[static_cast<std::size_t>(row)] = normal(random);
      for (int k = 0; k < columns; ++k) {
        const auto at = static_cast<std::size_t>(row * stride + k);
        numbers[at] = normal(random);
        if (type == FloatType::f16) {
          halves[at] = f32_to_f16(numbers[at]);
          numbers[at] = f16_to_f32(halves[at]);
        } else if (type == FloatType::bf16) {
          halves[at] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(numbers[at]) >> 16);
          numbers[at] = std::bit_cast<float>(std::uint32_t{halves[at]} << 16);
        }
      }
    }
    floats_there = std::make_unique<DeviceArray<float>>(numbers);
    halves_there = std::make_unique<DeviceArray<std::uint16_t>>(halves);
    bias_there = std::make_unique<DeviceArray<float>>(bias);
  }
  FloatSegment segment() const {
    const void* values = type == FloatType::f32 ? static_cast<const void*>(floats_there->data())
                                                : halves_there->data();
    return {{values, type}, bias_there->data(), static_cast<std::int64_t>(bias.size())};
  }

  FloatType type;
  std::int64_t stride;
  std::vector<float> numbers, bias;
  std::unique_ptr<DeviceArray<float>> floats_there, bias_there;
  std::unique_ptr<DeviceArray<std::uint16_t>> halves_there;
};

TEST_P(FloatMatmulTest, EqualsTheChains) {
  const IntCase& c = GetParam().shape;
  const Inputs x(c.tokens, c.columns);
  std::vector<std::unique_ptr<FloatData>> weights;
  FloatMatmul a;
  for (const int rows : c.rows) {
    weights.push_back(std::make_unique<FloatData>(GetParam().type, rows, c.columns));
    a.segments[a.segment_count++] = weights.back()->segment();
  }
  a.tokens = c.tokens;
  a.columns = c.columns;
  a.x = x.rows();
  a.finish = c.finish;
  const std::int64_t stride = float_stride(c.outputs());
  const std::vector<float> before(static_cast<std::size_t>(c.tokens * stride), 0.25f);
  const DeviceArray<float> out(before);
  a.out = {out.data(), stride};
  launch_float_matmul(a, test_stream());
  expect_outputs(c, stride, before, out.host(), [&](int t, std::size_t s, int row) {
    const FloatData& w = *weights[s];
    return chain(
        c.columns, w.bias[static_cast<std::size_t>(row)], [&](int k) { return x.at(t, k); },
        [&](int k) { return w.numbers[static_cast<std::size_t>(row * w.stride + k)]; });
  });
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, FloatMatmulTest,
    testing::Values(FloatCase{FloatType::f32, {8, false, 0, 0, 1, 100, {70}}},
                    FloatCase{FloatType::f32, {8, false, 0, 0, 9, 333, {40, 8, 9}}},
                    FloatCase{FloatType::f16, {8, false, 0, 0, 1, 512, {33}, Finish::add}},
                    FloatCase{FloatType::f16, {8, false, 0, 0, 3, 40, {40, 40}, Finish::swiglu}},
                    FloatCase{FloatType::bf16, {8, false, 0, 0, 4, 257, {65}, Finish::gelu}},
                    FloatCase{FloatType::bf16, {8, false, 0, 0, 17, 64, {31}}},
                    FloatCase{FloatType::f32, {8, false, 0, 0, 4, 64, {31}}},
                    FloatCase{FloatType::f16, {8, false, 0, 0, 8, 64, {31}}},
                    FloatCase{FloatType::bf16, {8, false, 0, 0, 1, 64, {31}}}));

class WeightOnlyTest : public testing::TestWithParam<IntCase> {
 protected:
  WeightOnlyTest() { simt::schedule() = {4, simt::CopyLands::at_wait}; }
  ~WeightOnlyTest() override { simt::schedule() = {}; }
};

TEST_P(WeightOnlyTest, EqualsTheChains) {
  const IntCase& c = GetParam();
  const Inputs x(c.tokens, c.columns);
  const IntMatmulData data(c);
  WeightOnlyMatmul a;
  for (std::size_t i = 0; i < c.rows.size(); ++i) a.segments[a.segment_count++] = data.segment(i);
  a.tokens = c.tokens;
  a.columns = c.columns;
  a.x = x.rows();
  a.finish = c.finish;
  const std::int64_t stride = float_stride(c.outputs());
  const std::vector<float> before(static_cast<std::size_t>(c.tokens * stride), 0.25f);
  const DeviceArray<float> out(before);
  a.out = {out.data(), stride};
  launch_weight_only_matmul(a, test_stream());
  expect_outputs(c, stride, before, out.host(), [&](int t, std::size_t s, int row) {
    return chain(
        c.columns, data.bias(s, row), [&](int k) { return x.at(t, k); },
        [&](int k) { return data.weight(s, row, k); });
  });
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, WeightOnlyTest,
    testing::Values(IntCase{8, false, 0, 0, 1, 100, {70}}, IntCase{8, false, 128, 0, 9, 300, {40}},
                    IntCase{8, true, 0, 0, 3, 200, {33}}, IntCase{8, true, 32, 0, 1, 200, {33}},
                    IntCase{4, false, 128, 0, 1, 640, {40, 40}, Finish::swiglu},
                    IntCase{4, true, 32, 0, 5, 333, {40, 24, 8}},
                    IntCase{3, true, 64, 0, 2, 700, {40}, Finish::gelu},
                    IntCase{3, false, 128, 0, 1, 130, {40}},
                    IntCase{2, true, 32, 0, 4, 520, {40}, Finish::add},
                    IntCase{2, false, 128, 0, 10, 250, {40}},
                    IntCase{4, false, 64, 0, 3, 250, {40}}, IntCase{3, true, 32, 0, 7, 250, {40}},
                    IntCase{2, true, 64, 0, 1, 250, {40}}));

}  // namespace
}  // namespace leq::LEQ_GPU
