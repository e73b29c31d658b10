// Some rows of a stored weight as a weight of its own: a view, nothing is copied. A run of whole
// panels is contiguous in every plane.
#pragma once

#include "base/slice.h"
#include "tensor/weight_layout.h"

namespace leq {

// `rows` begin at a panel (a multiple of 64) and end at one or with the weight; they may be empty.
WeightView slice_rows(const WeightView& weight, const Slice& rows);

}  // namespace leq
