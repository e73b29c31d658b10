// Some rows of a stored weight as a view without copying. This works because whole panels are
// contiguous in every plane.
#pragma once

#include "base/slice.h"
#include "tensor/weight_layout.h"

namespace leq {

// `rows` must begin at a panel (a multiple of 64) and end at one or at the end; may be empty.
WeightView slice_rows(const WeightView& weight, const Slice& rows);

}  // namespace leq
