// The contents of the golden files of version 1, as formulas. The files are never rewritten, and
// readers of all later versions must be able to open them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace leq::test {

struct GoldenTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::string scheme;
  std::string act;
};

struct GoldenFile {
  std::string name;
  std::vector<GoldenTensor> tensors;
};

inline const std::vector<GoldenFile>& golden_files() {
  static const std::vector<GoldenFile> files = {
      {"v1-float.leq",
       {{"norm", {5}, "f32", "none"},
        {"wide", {3, 70}, "f32", "none"},
        {"half", {4, 9}, "f16", "none"},
        {"brain", {4, 9}, "bf16", "none"}}},
      {"v1-int8.leq",
       {{"row", {3, 100}, "int8", "row"},
        {"group", {2, 128}, "int8", "g128"},
        {"only", {1, 7}, "int8", "none"}}},
      {"v1-int8-g128.leq",
       {{"row", {3, 130}, "int8-g128", "row"}, {"fine", {2, 40}, "int8-g32", "g128"}}},
      {"v1-int4-g128.leq",
       {{"row", {65, 130}, "int4-g128", "row"}, {"fine", {2, 40}, "int4-g32", "g128"}}}};
  return files;
}

// The value at (row, column). For integer schemes it is code * scale; each scale group begins with
// the code of largest magnitude, and scales are powers of two, so that every number is exact.
inline int golden_code(const GoldenTensor& tensor, std::int64_t row, std::int64_t column) {
  const bool four = tensor.scheme.starts_with("int4");
  const std::int64_t group = tensor.scheme.ends_with("-g32") ? 32 : 128;
  if (column % group == 0) return four ? -8 : 127;
  const std::int64_t mixed = row * 31 + column * 17 + column * column * 5;
  return four ? static_cast<int>(mixed % 16) - 8 : static_cast<int>(mixed % 255) - 127;
}

inline double golden_scale(const GoldenTensor& tensor, std::int64_t row, std::int64_t column) {
  const bool grouped = tensor.scheme.find("-g") != std::string::npos;
  const std::int64_t group = tensor.scheme.ends_with("-g32") ? 32 : 128;
  double scale = 0.125;
  for (std::int64_t i = 0; i < row % 5 + (grouped ? column / group : 0); ++i) scale /= 2;
  return scale;
}

inline float golden_value(const GoldenTensor& tensor, std::int64_t row, std::int64_t column) {
  if (!tensor.scheme.starts_with("int")) {
    return static_cast<float>((row * 7 + column * 3) % 64 - 20) / 8;
  }
  return static_cast<float>(golden_code(tensor, row, column) * golden_scale(tensor, row, column));
}

}  // namespace leq::test
