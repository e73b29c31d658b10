// The sections of gpu_agree, and what they share: random weights in each format, and how
// differences are counted and printed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/gpu/data.h"
#include "cuda/kernels/matmul/int_matmul.h"
#include "cuda/rt/rt.h"

namespace leq::LEQ_GPU::bench {

// The codes of a weight and of the rows that it multiplies.
struct CodeFormat {
  const char* name;
  int bits;          // 16: f16
  int weight_group;  // columns that share a scale; 0: one scale per row
  bool has_zeros;
  int token_group;  // 0: one scale per row; -1: f32 inputs

  const char* act() const { return token_group < 0 ? "none" : token_group == 0 ? "row" : "g128"; }
  // Columns of a sum, of `padded` columns.
  int sum_group(std::int64_t padded) const;
  // Rows [T][padded] of codes, scales and sums; sums are null if no kernel reads them.
  CodeRows rows(std::int64_t padded, std::int8_t* codes, float* scales, std::int32_t* sums) const;
};

// The weights of `rows` (padded) outputs of one format in device memory.
class RandomWeights {
 public:
  RandomWeights(const CodeFormat& format, std::int64_t rows, std::int64_t columns,
                rt::Stream& stream);

  CodeSegment codes(std::int64_t first_row, int rows) const;
  FloatSegment halves(std::int64_t first_row, int rows) const;

 private:
  std::size_t scales() const { return static_cast<std::size_t>(rows_ * groups_); }
  Memory numbers_of(rt::Stream& stream) const;

  CodeFormat format_;
  std::int64_t rows_, columns_, padded_, groups_;
  Memory codes_, scales_, group_scales_, zeros_;
};

struct Tally {
  std::int64_t runs = 0, wrong = 0;

  // Adds a comparison of rows of `stride` words, whose differences it counts; prints the first few.
  void compare(std::span<const std::uint32_t> found, std::span<const std::uint32_t> wanted,
               std::int64_t stride, const std::string& what);
  void add(const Tally& other);
};
void print(const CodeFormat& format, const std::string& layer, std::int64_t outputs,
           std::int64_t columns, const Tally& tally);

// Compares matmuls of one token that are joined to what follows with launches of their own.
Tally compare_joined(bool tiny, rt::Stream& stream);
// Compares every kernel for experts with one launch of int_gemm per expert, at the sizes of
// Qwen3-30B-A3B, in each format, for 1 to 2,048 tokens; an expert has between none and all of them.
Tally compare_experts(bool tiny, rt::Stream& stream);
// Compares Gated DeltaNet at the sizes of Qwen3-Next: steps of any size with the recurrence token
// by token, all of these with formulas in double, and the recurrence with the CPU's kernels.
Tally compare_delta_net(bool tiny);

}  // namespace leq::LEQ_GPU::bench
