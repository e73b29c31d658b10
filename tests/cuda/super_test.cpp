// Products and embedding rows of GGUF's k types, compared with plain loops over codes in the order
// of docs/numerics.md; the bits must be equal.
#include "cuda/kernels/matmul/super.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <tuple>

#include "base/half.h"
#include "cuda/layout/layout.h"
#include "cuda/sim/emulator.h"
#include "int_matmul_case.h"

namespace leq::LEQ_GPU {
namespace {

struct SuperCase {
  int bits, token_group, tokens, columns;
  std::vector<int> rows;
  Finish finish = Finish::store;
  bool large = false;  // tiles of 128 x 128

  int padded() const { return static_cast<int>(padded_columns(columns)); }
  int span() const { return token_group == 0 ? 128 : token_group; }
  int sub_columns() const { return bits == 6 ? 16 : 32; }
  int parts() const { return bits == 6 ? 1 : 2; }  // d and dmin, s and m
};

// A weight as numbers, and its planes on the device.
struct SuperData {
  SuperCase c;
  int rows;
  std::vector<int> codes;     // [N][Kp]
  std::vector<float> supers;  // [N][ceil(Kp/256)][parts]
  std::vector<int> subs;      // [N][Kp/sub_columns][parts]
  std::vector<float> bias;
  std::unique_ptr<DeviceArray<std::uint8_t>> codes_there, high_there, subs_there;
  std::unique_ptr<DeviceArray<std::uint16_t>> supers_there;
  std::unique_ptr<DeviceArray<float>> bias_there;

  int super_blocks() const { return (c.padded() + 255) / 256; }
  int sub_blocks() const { return c.padded() / c.sub_columns(); }
  int code(int row, int k) const { return codes[static_cast<std::size_t>(row * c.padded() + k)]; }
  float super(int row, int k, int part) const {
    return supers[static_cast<std::size_t>((row * super_blocks() + k / 256) * c.parts() + part)];
  }
  int sub(int row, int k, int part) const {
    return subs[static_cast<std::size_t>((row * sub_blocks() + k / c.sub_columns()) * c.parts() +
                                         part)];
  }

  SuperData(const SuperCase& of, int count, unsigned seed) : c(of), rows(count) {
    std::mt19937 random(seed);
    const auto below = [&](int most) {
      return static_cast<int>(random() % static_cast<unsigned>(most));
    };
    const int all = static_cast<int>(padded_rows(rows)), padded = c.padded(),
              high_bits = c.bits - 4;
    std::vector<std::uint8_t> low(static_cast<std::size_t>(all * padded / 2));
    std::vector<std::uint8_t> high(static_cast<std::size_t>(all * padded * high_bits / 8) + 1);
    const auto put = [&](std::vector<std::uint8_t>& plane, int bits, int row, int k, int value) {
      const int quads = 8 / bits;
      const auto at = static_cast<std::size_t>(row / 64 * (64 * padded * bits / 8) +
                                               k / 4 / quads * 256 + row % 64 * 4 + k % 4);
      plane[at] = static_cast<std::uint8_t>(plane[at] | value << (bits * (k / 4 % quads)));
    };
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < padded; ++k) {
        const int code = below(1 << c.bits);
        codes.push_back(code);
        put(low, 4, row, k, code & 15);
        if (high_bits > 0) put(high, high_bits, row, k, code >> 4);
      }
    }
    std::vector<std::uint16_t> halves(static_cast<std::size_t>(all * super_blocks() * c.parts()));
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(all * sub_blocks() * c.parts()));
    const auto place = [&](int row, int block, int blocks, int part) {
      return static_cast<std::size_t>(((row / 64 * blocks + block) * c.parts() + part) * 64 +
                                      row % 64);
    };
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < super_blocks() * c.parts(); ++i) {
        const std::uint16_t half = f32_to_f16(static_cast<float>(below(1000) - 500) * 1e-5f);
        halves[place(row, i / c.parts(), super_blocks(), i % c.parts())] = half;
        supers.push_back(f16_to_f32(half));
      }
      for (int i = 0; i < sub_blocks() * c.parts(); ++i) {
        const int byte = c.bits == 6 ? below(256) - 128 : below(256);
        bytes[place(row, i / c.parts(), sub_blocks(), i % c.parts())] =
            static_cast<std::uint8_t>(byte);
        subs.push_back(byte);
      }
      bias.push_back(static_cast<float>(below(100)) * 0.01f);
    }
    codes_there = std::make_unique<DeviceArray<std::uint8_t>>(low);
    high_there = std::make_unique<DeviceArray<std::uint8_t>>(high);
    subs_there = std::make_unique<DeviceArray<std::uint8_t>>(bytes);
    supers_there = std::make_unique<DeviceArray<std::uint16_t>>(halves);
    bias_there = std::make_unique<DeviceArray<float>>(bias);
  }

  SuperWeight weight() const {
    return {codes_there->data(), high_there->data(), supers_there->data(), subs_there->data(),
            c.bits};
  }
};

class Super : public testing::TestWithParam<SuperCase> {};

TEST_P(Super, ProductsFollowTheFormula) {
  const SuperCase& c = GetParam();
  std::mt19937 random(8);
  const int padded = c.padded(), scales_each = c.token_group == 0 ? 1 : padded / c.token_group;
  std::vector<std::int8_t> x(static_cast<std::size_t>(c.tokens * padded));
  std::vector<float> scales(static_cast<std::size_t>(c.tokens * scales_each));
  for (int t = 0; t < c.tokens; ++t) {
    for (int k = 0; k < c.columns; ++k) {
      x[static_cast<std::size_t>(t * padded + k)] =
          static_cast<std::int8_t>(static_cast<int>(random() % 255) - 127);
    }
  }
  for (float& scale : scales) scale = 0.001f * static_cast<float>(1 + random() % 20);
  const DeviceArray<std::int8_t> x_there(x);
  const DeviceArray<float> scales_there(scales);
  std::vector<std::unique_ptr<SuperData>> data;
  SuperMatmul a;
  int outputs = 0;
  for (const int rows : c.rows) {
    data.push_back(std::make_unique<SuperData>(c, rows, 5 + static_cast<unsigned>(outputs)));
    a.segments[a.segment_count++] = {data.back()->weight(), data.back()->bias_there->data(), rows};
    outputs += rows;
  }
  const std::int64_t stride = float_stride(outputs);
  std::vector<float> start(static_cast<std::size_t>(c.tokens * stride));
  for (float& value : start) value = static_cast<float>(random() % 7);
  const DeviceArray<float> out(start);
  a.tokens = c.tokens;
  a.columns = c.columns;
  a.x.codes = x_there.data();
  a.x.scales = scales_there.data();
  a.x.code_stride = padded;
  a.x.scale_stride = scales_each;
  a.x.group = c.token_group;
  a.finish = c.finish;
  a.out = {out.data(), stride};
  write_late({x_there.bytes(), scales_there.bytes(), out.bytes()});
  if (c.large) {
    launch_super_gemm(a, true, test_stream());
  } else {
    launch_super_matmul(a, test_stream());
  }
  const std::vector<float> found = out.host();
  const auto value = [&](const SuperData& w, int t, int row) {
    float f = 0;
    for (int k = 0; k < c.columns; k += c.span()) {
      std::int64_t products = 0, inputs = 0;
      for (int i = k; i < std::min(k + c.span(), padded); ++i) {
        const int input = x[static_cast<std::size_t>(t * padded + i)];
        products += w.sub(row, i, 0) * (w.code(row, i) - (c.bits == 6 ? 32 : 0)) * input;
        if (c.bits != 6) inputs += w.sub(row, i, 1) * input;
      }
      const float by_token = scales[static_cast<std::size_t>(
          t * scales_each + (c.token_group == 0 ? 0 : k / c.token_group))];
      f = std::fma(static_cast<float>(products), w.super(row, k, 0) * by_token, f);
      if (c.bits != 6) f = std::fma(-static_cast<float>(inputs), w.super(row, k, 1) * by_token, f);
    }
    return f + w.bias[static_cast<std::size_t>(row)];
  };
  const bool paired = is_gated(c.finish);
  for (int t = 0; t < c.tokens; ++t) {
    int column = 0;
    for (std::size_t s = 0; s < (paired ? 1 : data.size()); ++s) {
      for (int row = 0; row < c.rows[s]; ++row, ++column) {
        const auto at = static_cast<std::size_t>(t * stride + column);
        const float up = paired ? value(*data[1], t, row) : 0.0f;
        ASSERT_EQ(found[at], finished_value(c.finish, value(*data[s], t, row), up, start[at]))
            << "token " << t << ", column " << column;
      }
    }
    for (; column < stride; ++column) {
      const auto at = static_cast<std::size_t>(t * stride + column);
      ASSERT_EQ(found[at], start[at]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Super,
    testing::Values(SuperCase{4, 128, 1, 512, {40, 33}},
                    SuperCase{4, 32, 6, 300, {70}, Finish::add},
                    SuperCase{5, 128, 1, 256, {20, 20}, Finish::swiglu},
                    SuperCase{4, 128, 1, 256, {20, 20}, Finish::geglu},
                    SuperCase{4, 128, 1, 256, {20, 20}, Finish::clamped_swiglu},
                    SuperCase{5, 0, 3, 768, {33}, Finish::gelu}, SuperCase{6, 32, 1, 2304, {64}},
                    SuperCase{6, 128, 1, 300, {90}, Finish::add},
                    SuperCase{4, 32, 1, 4500, {20, 9}}, SuperCase{4, 128, 1, 17000, {17}},
                    SuperCase{5, 32, 1, 1100, {16, 40}, Finish::swiglu},
                    SuperCase{5, 32, 7, 640, {70}}, SuperCase{4, 128, 8, 4300, {33}, Finish::add},
                    SuperCase{6, 32, 2, 1200, {20}, Finish::silu},
                    SuperCase{6, 128, 5, 640, {40, 40}, Finish::swiglu}));
INSTANTIATE_TEST_SUITE_P(
    Tiles, Super,
    testing::Values(SuperCase{4, 128, 9, 640, {70, 33}},
                    SuperCase{4, 32, 70, 300, {40}, Finish::add},
                    SuperCase{5, 32, 9, 384, {40, 40}, Finish::swiglu},
                    SuperCase{5, 128, 66, 512, {20, 20}, Finish::geglu},
                    SuperCase{6, 32, 12, 256, {64}, Finish::gelu}, SuperCase{6, 0, 20, 128, {65}},
                    SuperCase{4, 128, 130, 640, {70, 70}, Finish::swiglu, true},
                    SuperCase{5, 0, 9, 384, {130, 20}, Finish::store, true},
                    SuperCase{6, 128, 129, 896, {90}, Finish::add, true}));

// Codes of the outputs, and their norm, are those of launches of their own.
class SuperFollowers : public testing::TestWithParam<SuperCase> {
 protected:
  ~SuperFollowers() override { simt::schedule() = {}; }
};

TEST_P(SuperFollowers, GiveTheBitsOfTwoLaunches) {
  const SuperCase& c = GetParam();
  const SuperData data(c, c.rows[0], 5);
  const auto padded = static_cast<std::size_t>(padded_columns(c.rows[0]));
  const DeviceArray<std::int8_t> x(
      std::vector<std::int8_t>(static_cast<std::size_t>(c.padded()), 3));
  const DeviceArray<float> scales(std::vector<float>(static_cast<std::size_t>(c.padded()), 0.01f));
  const DeviceArray<float> gain(std::vector<float>(padded, 1.25f));
  const DeviceArray<unsigned> tickets(std::vector<unsigned>(kTickets, 0u));
  const DeviceArray<unsigned long long> fault(std::vector<unsigned long long>{kNoFault});
  enum class Follower : std::uint8_t { codes, norm };
  const auto run = [&](Follower follower, bool joined) {
    const DeviceArray<float> out(std::vector<float>(padded, 0.5f)), normed(padded),
        steps(padded / 128);
    const DeviceArray<std::int8_t> codes(padded);
    normed.zero();
    Quantize quantize;
    quantize.out = {codes.data(), steps.data(), nullptr, 0, 0, 0, 128, 128};
    quantize.fault = {fault.data(), 1};
    SuperMatmul a;
    a.segments[a.segment_count++] = {data.weight(), data.bias_there->data(), c.rows[0]};
    a.tokens = 1;
    a.columns = c.columns;
    a.x = {x.data(), scales.data(), nullptr, c.padded(), c.padded(), 0, c.token_group};
    a.finish = c.finish;
    a.out = {out.data(), static_cast<std::int64_t>(padded)};
    write_late({out.bytes()});
    NormArguments norm;
    norm.x = a.out;
    norm.out = {normed.data(), static_cast<std::int64_t>(padded)};
    norm.tokens = 1;
    norm.width = c.rows[0];
    norm.gain = gain.data();
    norm.eps = 1e-5f;
    norm.quantize = quantize;
    EXPECT_TRUE(makes_codes(a));
    EXPECT_TRUE(joins(a, norm));
    if (follower == Follower::codes && joined) a.codes = {quantize, nullptr, tickets.data()};
    if (follower == Follower::norm && joined) {
      launch_joined(a, norm, tickets.data(), test_stream());
    } else {
      launch_super_matmul(a, test_stream());
    }
    if (follower == Follower::norm && !joined) launch_norm(norm, test_stream());
    if (follower == Follower::codes && !joined) {
      launch_quantize({a.out, 1, c.rows[0], nullptr, quantize}, test_stream());
    }
    return std::tuple(out.host(), normed.host(), steps.host(), codes.host());
  };
  for (const Follower follower : {Follower::codes, Follower::norm}) {
    simt::schedule() = {};
    const auto expected = run(follower, false);
    for (const simt::Schedule& schedule :
         {simt::Schedule{}, simt::Schedule{5, simt::CopyArrival::at_issue}}) {
      simt::schedule() = schedule;
      EXPECT_EQ(run(follower, true), expected);
    }
  }
  EXPECT_EQ(tickets.host(), std::vector<unsigned>(kTickets));
}

INSTANTIATE_TEST_SUITE_P(Kinds, SuperFollowers,
                         testing::Values(SuperCase{4, 128, 1, 512, {300}, Finish::add},
                                         SuperCase{5, 128, 1, 256, {150}, Finish::add},
                                         SuperCase{6, 128, 1, 768, {33}, Finish::gelu},
                                         SuperCase{4, 32, 1, 300, {70}, Finish::add},
                                         SuperCase{5, 32, 1, 512, {128}},
                                         SuperCase{6, 32, 1, 256, {200}, Finish::add}));

TEST(SuperEmbed, RowsOfATable) {
  for (const int bits : {4, 5, 6}) {
    const SuperCase c = {bits, 128, 2, 300, {90}};
    const SuperData table(c, 90, 3);
    const DeviceArray<std::int32_t> ids(std::vector<std::int32_t>{77, 5});
    const DeviceArray<float> out(2 * 320);
    launch_super_embed({table.weight(), 300, ids.data(), nullptr, 2, {out.data(), 320}},
                       test_stream());
    const std::vector<float> found = out.host();
    for (int t = 0; t < 2; ++t) {
      const int row = t == 0 ? 77 : 5;
      for (int k = 0; k < 300; ++k) {
        const float scale = table.super(row, k, 0) * static_cast<float>(table.sub(row, k, 0));
        float want = 0;
        if (bits == 6) {
          want = scale * static_cast<float>(table.code(row, k) - 32);
        } else {
          const float less = table.super(row, k, 1) * static_cast<float>(table.sub(row, k, 1));
          want = scale * static_cast<float>(table.code(row, k)) - less;
        }
        ASSERT_EQ(found[static_cast<std::size_t>(t * 320 + k)], want) << bits << " bits, " << k;
      }
    }
  }
}

}  // namespace
}  // namespace leq::LEQ_GPU
