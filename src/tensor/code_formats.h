// Schemes whose codes stand for numbers by a rule of their own: neither floats nor integers times a
// scale. Each is a row: a new one is a file like nf4.cpp, a name in CodeKind and a line in
// code_formats.cpp. Codes lie in panels as those of all schemes do (weight_layout.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/chosen_codes.h"
#include "tensor/pack.h"
#include "tensor/weight_layout.h"

namespace leq {

// A panel of the planes of scales and zeros, to be filled with numbers for measuring speed.
struct RandomNumbers {
  const WeightView& view;
  std::int64_t panel;
  float scale;  // the weights' standard deviation is to be this times CodeFormat::deviation
  std::byte* scales;
  std::byte* zeros;
  // 24 random bits, a function of the panel, i and what.
  std::function<std::uint32_t(std::int64_t i, std::uint32_t what)> random;

  bool is_pad(std::int64_t row) const { return panel * kPanelRows + row >= view.rows; }
};

struct CodeFormat {
  CodeKind kind;
  std::string_view name;  // of the type, and in files
  int bits = 0;
  int group = 0;            // columns
  std::uint8_t zero = 0;    // the code of pads
  float deviation = 1.0f;   // of the numbers of random codes, where RandomNumbers::scale is 1
  std::string_view method;  // chooses the codes where `nearest` is null
  // Bytes of the planes of scales and zeros, for padded rows and columns.
  PlaneBytes (*planes)(std::int64_t padded_rows, std::int64_t padded_columns) = nullptr;
  ChosenCounts (*counts)(std::int64_t rows, std::int64_t columns) = nullptr;
  // The nearest codes of finite values [rows][columns].
  ChosenCodes (*nearest)(std::span<const float> values, std::int64_t rows,
                         std::int64_t columns) = nullptr;
  // Scales and zeros as chosen, into the planes of `packed`.
  void (*put)(const ChosenCodes& chosen, PackedWeight& packed) = nullptr;
  // The numbers of `codes`, those of columns [first, first + out.size()) of a row, at most 32.
  void (*unpack)(const WeightView& weight, std::int64_t row, std::int64_t first,
                 std::span<const std::uint8_t> codes, std::span<float> out) = nullptr;
  // The scale of one code; null where it has more than one.
  float (*scale_at)(const WeightView& weight, std::int64_t row, std::int64_t column) = nullptr;
  // The numbers [rows][columns] that chosen codes stand for, whose counts are right.
  std::vector<float> (*dequantize)(const ChosenCodes& chosen, std::int64_t rows,
                                   std::int64_t columns) = nullptr;
  void (*randomize)(const RandomNumbers& numbers) = nullptr;

  QuantScheme scheme() const { return {kind, bits, Scaling::group, group}; }
};

std::span<const CodeFormat> code_formats();
// nullptr for floats and integers.
const CodeFormat* code_format(CodeKind kind);

CodeFormat nf4_format();
CodeFormat b1_format();
CodeFormat q4_k_format();
CodeFormat q5_k_format();
CodeFormat q6_k_format();

}  // namespace leq
