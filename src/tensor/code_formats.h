// Schemes whose codes represent numbers by a rule of their own: neither floats nor integers times a
// scale. A new format needs a file like nf4.cpp, a name in CodeKind and a line in code_formats.cpp.
// Codes are stored in panels, like the codes of all schemes (weight_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/pack.h"
#include "tensor/weight_layout.h"

namespace leq {

// One panel of the planes of scales and zeros, to be filled with random numbers for speed tests.
struct RandomNumbers {
  const WeightView& view;
  std::int64_t panel;
  float scale;  // std. deviation of the weights, divided by CodeFormat::deviation
  std::byte* scales;
  std::byte* zeros;
  // Returns 24 random bits, a function of the panel, i and `what`.
  std::function<std::uint32_t(std::int64_t i, std::uint32_t what)> random;

  bool is_pad(std::int64_t row, std::int64_t column = 0) const {
    return panel * kPanelRows + row >= view.rows || column >= view.columns;
  }
};

struct CodeFormat {
  CodeKind kind;
  std::string_view name;  // name of the type, also in files
  int bits = 0;
  int group = 0;            // columns per group
  std::uint8_t zero = 0;    // code of padding
  float deviation = 1.0f;   // std. deviation of the values of random codes at scale 1
  std::string_view method;  // method that chooses the codes if `nearest` is null
  // Bytes of the planes of scales and zeros for padded rows and columns.
  PlaneBytes (*planes)(std::int64_t padded_rows, std::int64_t padded_columns) = nullptr;
  ChosenCounts (*counts)(std::int64_t rows, std::int64_t columns) = nullptr;
  // Chooses the nearest codes of finite values [rows][columns].
  ChosenCodes (*nearest)(std::span<const float> values, std::int64_t rows,
                         std::int64_t columns) = nullptr;
  // Stores chosen scales and zeros in the planes of `packed`.
  void (*put)(const ChosenCodes& chosen, PackedWeight& packed) = nullptr;
  // Values of `codes`, which are columns [first, first + out.size()) of a row, at most 32.
  void (*unpack)(const WeightView& weight, std::int64_t row, std::int64_t first,
                 std::span<const std::uint8_t> codes, std::span<float> out) = nullptr;
  // The scale of one code; null if codes have more than one scale.
  float (*scale_at)(const WeightView& weight, std::int64_t row, std::int64_t column) = nullptr;
  // Values [rows][columns] of chosen codes, whose counts must be right.
  std::vector<float> (*dequantize)(const ChosenCodes& chosen, std::int64_t rows,
                                   std::int64_t columns) = nullptr;
  void (*randomize)(const RandomNumbers& numbers) = nullptr;

  QuantScheme scheme() const { return {kind, bits, Scaling::group, group}; }
};

std::span<const CodeFormat> code_formats();
// Returns nullptr for floats and integers.
const CodeFormat* code_format(CodeKind kind);

CodeFormat nf4_format();
CodeFormat b1_format();
CodeFormat mxfp4_format();
CodeFormat iq4_nl_format();
CodeFormat nvfp4_format();
CodeFormat q4_k_format();
CodeFormat q5_k_format();
CodeFormat q6_k_format();

}  // namespace leq
