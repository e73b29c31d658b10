// Chooses scales and minima of a superblock (tensor/super_blocks.h) with small squared error.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/quant_scheme.h"

namespace leq {

// One superblock of a row: its values, and where to store its scales and minima.
struct SuperPart {
  std::span<const float> x;        // at most 256 columns
  std::span<const float> weights;  // >= 0, weights of columns' squared errors; empty: all 1
  float* supers;                   // output: SuperLayout::supers numbers that f16 can hold
  std::uint8_t* subs;              // output: SuperLayout::subs bytes of each sub-block
};

// Tries about 20 scales for every sub-block. For the codes of each, scale and minimum with the
// least weighted squared error follow by linear regression (llama.cpp's idea); with the best pair
// codes are rounded once more. Scales, and then minima for the codes of the rounded scales, are
// rounded to whole multiples (bytes) of the superblock's numbers.
void fit_super(CodeKind kind, const SuperPart& part);

}  // namespace leq
