// Tests norms of heads, rotation and appending to pages in double, and the precision of each page
// type.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/half.h"
#include "cuda/kernels/launch.h"
#include "cuda/layout/layout.h"
#include "device_memory.h"

namespace leq::LEQ_GPU {
namespace {

struct RopeCase {
  KvType keys, values;
  int heads, kv_heads, dims;
  bool normed, rotated;
};

class RopeAppend : public testing::TestWithParam<RopeCase> {
 protected:
  static constexpr int kRows = 5, kFirst = 62;  // positions 62 to 66 cross a page border
  static constexpr float kEps = 1e-5f;
  static constexpr double kTolerance = 3e-6;

  RopeAppend() {
    const RopeCase& c = GetParam();
    width_ = (c.heads + 2 * c.kv_heads) * c.dims;
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& numbers, int count) {
      numbers.resize(static_cast<std::size_t>(count));
      for (float& x : numbers) x = normal(random);
    };
    fill(qkv_, kRows * width_);
    fill(q_gain_, c.dims);
    fill(k_gain_, c.dims);
    if (!c.normed) fill(key_offset_, c.kv_heads * c.dims);
    for (int position = 0; position < kFirst + kRows; ++position) {
      for (int i = 0; i < c.dims; ++i) {
        const double angle = angle_of(position, i % (c.dims / 2));
        table_.push_back(static_cast<float>(i < c.dims / 2 ? std::cos(angle) : std::sin(angle)));
      }
    }
  }

  double angle_of(int position, int pair) const {
    return position * std::pow(10000.0, -2.0 * pair / GetParam().dims);
  }

  // Returns a head after norm and rotation; an offset, if there is one, is subtracted from keys.
  // `index` counts q heads, then k heads, then v heads.
  std::vector<double> expected(int row, int index) const {
    const RopeCase& c = GetParam();
    const auto d = static_cast<std::size_t>(c.dims);
    const float* const from = qkv_.data() + row * width_ + index * c.dims;
    std::vector<double> x(from, from + d);
    const bool query = index < c.heads;
    if (index >= c.heads + c.kv_heads) return x;
    if (c.normed) {
      double squares = 0;
      for (const double v : x) squares += v * v / c.dims;
      const auto& gain = query ? q_gain_ : k_gain_;
      for (std::size_t i = 0; i < d; ++i) x[i] *= gain[i] / std::sqrt(squares + kEps);
    }
    for (std::size_t i = 0; c.rotated && i < d / 2; ++i) {
      const double angle = angle_of(kFirst + row, static_cast<int>(i));
      const double a = x[i], b = x[i + d / 2];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[i + d / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
    for (std::size_t i = 0; !query && !key_offset_.empty() && i < d; ++i) {
      x[i] -= static_cast<double>(key_offset_[static_cast<std::size_t>(index - c.heads) * d + i]);
    }
    for (double& v : x) v *= query ? 1.0 / std::sqrt(c.dims) : 1.0;
    return x;
  }

  static int number_bytes(KvType type) {
    return type == KvType::f32 ? 4 : type == KvType::f16 ? 2 : 1;
  }
  std::int64_t page_bytes(KvType type) const {
    const RopeCase& c = GetParam();
    return c.kv_heads * 64 *
           (kv_row_bytes(c.dims, number_bytes(type)) + (type == KvType::int8 ? 4 : 0));
  }

  // A number stored in a page, and how far it may be from the number that was appended.
  struct Stored {
    double value, tolerance;
  };
  Stored stored(const std::vector<std::byte>& pages, KvType type, int head, int position,
                int i) const {
    const RopeCase& c = GetParam();
    const std::int64_t row_bytes = kv_row_bytes(c.dims, number_bytes(type));
    const std::byte* page = pages.data() + (1 - position / 64) * page_bytes(type);  // table {1, 0}
    const std::byte* row = page + (head * 64 + position % 64) * row_bytes;
    if (type == KvType::f32) return {reinterpret_cast<const float*>(row)[i], kTolerance};
    if (type == KvType::f16) {
      const double value = f16_to_f32(reinterpret_cast<const std::uint16_t*>(row)[i]);
      return {value, std::abs(value) * 0x1p-11 + kTolerance};
    }
    const auto* ends = reinterpret_cast<const std::uint16_t*>(page + c.kv_heads * 64 * row_bytes);
    const double scale = f16_to_f32(ends[head * 64 + position % 64]);
    const double minimum = f16_to_f32(ends[(c.kv_heads + head) * 64 + position % 64]);
    return {minimum + scale * static_cast<double>(row[i]), scale / 2 + kTolerance};
  }

  void expect_pages(const std::vector<std::byte>& pages, KvType type, int first_head) const {
    const RopeCase& c = GetParam();
    for (int row = 0; row < kRows; ++row) {
      for (int head = 0; head < c.kv_heads; ++head) {
        const auto want = expected(row, first_head + head);
        for (int i = 0; i < c.dims; ++i) {
          const Stored found = stored(pages, type, head, kFirst + row, i);
          ASSERT_NEAR(found.value, want[static_cast<std::size_t>(i)], found.tolerance)
              << "row " << row << ", head " << head << ", number " << i;
        }
      }
    }
  }

  // Runs the kernel on qkv_; the result is the changed q and the pages.
  struct Result {
    std::vector<float> qkv;
    std::vector<std::byte> keys, values;
    unsigned long long fault;
  };
  Result run() const {
    const RopeCase& c = GetParam();
    const DeviceArray<float> qkv(qkv_), q_gain(q_gain_), k_gain(k_gain_), table(table_),
        offset(key_offset_.empty() ? std::vector<float>(1) : key_offset_);
    const DeviceArray<std::byte> keys(static_cast<std::size_t>(2 * page_bytes(c.keys)));
    const DeviceArray<std::byte> values(static_cast<std::size_t>(2 * page_bytes(c.values)));
    // The batch has two consecutive runs in the same pages.
    const DeviceArray<AttentionRun> runs(
        std::vector<AttentionRun>{{0, 2, kFirst, 0}, {2, kRows - 2, kFirst + 2, 0}});
    const DeviceArray<std::int32_t> row_runs(std::vector<std::int32_t>{0, 0, 1, 1, 1});
    const DeviceArray<std::int32_t> pages(std::vector<std::int32_t>{1, 0});
    const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{~0ull});
    RopeAppendArguments a;
    a.qkv = {qkv.data(), width_};
    a.batch = {kRows, runs.data(), 2, row_runs.data(), pages.data(), kRows - 2, kFirst + kRows};
    a.heads = {c.heads, c.kv_heads, c.dims, 0, c.heads / c.kv_heads};
    if (c.normed) {
      a.q_gain = q_gain.data();
      a.k_gain = k_gain.data();
      a.q_eps = a.k_eps = kEps;
    }
    if (c.rotated) a.table = table.data();
    a.rotary_dims = c.dims;
    if (!key_offset_.empty()) a.key_offset = offset.data();
    a.keys = {keys.data(), page_bytes(c.keys), c.keys};
    a.values = {values.data(), page_bytes(c.values), c.values};
    a.fault = {fault.data(), 9};
    write_late({qkv.bytes(), keys.bytes(), values.bytes()});
    launch_rope_append(a, test_stream());
    return {qkv.host(), keys.host(), values.host(), fault.host()[0]};
  }

  int width_ = 0;
  std::vector<float> qkv_, q_gain_, k_gain_, table_, key_offset_;
};

TEST_P(RopeAppend, QueriesKeysAndValuesAreThoseOfDouble) {
  const RopeCase& c = GetParam();
  const Result found = run();
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < c.heads; ++head) {
      const auto want = expected(row, head);
      for (int i = 0; i < c.dims; ++i) {
        ASSERT_NEAR(found.qkv[static_cast<std::size_t>(row * width_ + head * c.dims + i)],
                    want[static_cast<std::size_t>(i)], kTolerance)
            << "row " << row << ", head " << head << ", number " << i;
      }
    }
  }
  expect_pages(found.keys, c.keys, c.heads);
  expect_pages(found.values, c.values, c.heads + c.kv_heads);
  EXPECT_EQ(found.fault, ~0ull);
}

TEST_P(RopeAppend, ARowThatIsNotFiniteIsReported) {
  qkv_[static_cast<std::size_t>(3 * width_ + width_ - 1)] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(run().fault, (9ull << 32) + 3);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RopeAppend,
    testing::Values(RopeCase{KvType::f32, KvType::f16, 4, 4, 32, false, true},
                    RopeCase{KvType::f16, KvType::int8, 8, 2, 80, true, true},
                    RopeCase{KvType::int8, KvType::int8, 5, 1, 128, true, true},
                    RopeCase{KvType::int8, KvType::f32, 3, 3, 20, false, false}));

}  // namespace
}  // namespace leq::LEQ_GPU
