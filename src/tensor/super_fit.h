// Scales and minima of a superblock (tensor/super_blocks.h) of nearly least squared error.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/quant_scheme.h"

namespace leq {

// One superblock of a row.
struct SuperPart {
  std::span<const float> x;        // at most 256 columns
  std::span<const float> weights;  // >= 0, of the columns' squared errors; empty: all 1
  float* supers;                   // to: SuperLayout::supers numbers that f16 holds
  std::uint8_t* subs;              // to: SuperLayout::subs bytes of each sub-block
};

// Of every sub-block 20 scales are tried: for the codes of each, scale and minimum of least
// weighted squared error follow by linear regression (the idea is llama.cpp's), the best ones with
// codes rounded once more. Scales and minima are then rounded to multiples of the superblock's
// numbers, whole bytes: minima after the scales, for the codes that these give.
void fit_super(CodeKind kind, const SuperPart& part);

}  // namespace leq
