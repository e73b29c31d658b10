// Inputs and float weights for matmuls of f32 activations, on the host and on the device. Inputs
// are split into f16 or bf16 parts ("terms") by the kernel that the backend uses.
#pragma once

#include <bit>

#include "int_matmul_case.h"

namespace leq::LEQ_GPU {

// Rows of inputs on the host and on the device, with zeros as padding.
class Inputs {
 public:
  Inputs(std::vector<float> numbers, int tokens, int columns)
      : tokens_(tokens), columns_(columns), numbers_(std::move(numbers)) {
    std::vector<float> rows(static_cast<std::size_t>(tokens * stride()));
    for (int t = 0; t < tokens; ++t) {
      for (int k = 0; k < columns; ++k) rows[static_cast<std::size_t>(t * stride() + k)] = at(t, k);
    }
    there_ = std::make_unique<DeviceArray<float>>(rows);
  }
  Inputs(int tokens, int columns) : Inputs(normal_numbers(tokens * columns), tokens, columns) {}

  static std::vector<float> normal_numbers(int count) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> numbers(static_cast<std::size_t>(count));
    for (float& x : numbers) x = normal(random);
    return numbers;
  }

  int tokens() const { return tokens_; }
  std::span<std::byte> bytes() const { return there_->bytes(); }
  FloatRows rows() const { return {there_->data(), stride()}; }
  float at(int token, int k) const {
    return numbers_[static_cast<std::size_t>(token * columns_ + k)];
  }
  float largest(int token) const {
    float most = 0;
    for (int k = 0; k < columns_; ++k) most = std::max(most, std::abs(at(token, k)));
    return most;
  }

  // Splits `tokens` rows from `first` on into `count` terms; the next call overwrites the result.
  TermRows terms(int count, int first, int tokens) {
    const std::int64_t stride = padded_columns(columns_) * count;
    terms_there_ = std::make_unique<DeviceArray<std::uint16_t>>(
        std::vector<std::uint16_t>(static_cast<std::size_t>(tokens * stride), 0x7fff));
    scales_there_ = std::make_unique<DeviceArray<float>>(
        std::vector<float>(static_cast<std::size_t>(tokens) * 2, NAN));
    const TermRows there = {terms_there_->data(), scales_there_->data(), stride, count};
    QuantizeArguments a = {
        {there_->data() + first * this->stride(), this->stride()}, tokens, columns_, nullptr, {}};
    a.quantize.terms = there;
    launch_quantize(a, test_stream());
    return there;
  }
  TermRows terms(int count) { return terms(count, 0, tokens_); }
  // The terms computed by the last call.
  std::vector<std::uint16_t> cut() const { return terms_there_->host(); }
  std::vector<float> scales() const { return scales_there_->host(); }

 private:
  std::int64_t stride() const { return float_stride(columns_); }

  int tokens_, columns_;
  std::vector<float> numbers_;
  std::unique_ptr<DeviceArray<float>> there_, scales_there_;
  std::unique_ptr<DeviceArray<std::uint16_t>> terms_there_;
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

}  // namespace leq::LEQ_GPU
