// The folds that --method and --smooth choose: SmoothQuant, AWQ, and the data-free equaliser.
#pragma once

#include <optional>

#include "quantize/quantize_blocks.h"

namespace leq {

// With one alpha for all sites; without: for each site the one of least error, none among them.
FoldMethod smoothing_fold(std::optional<double> alpha);
// s = 1 / max |W| of each channel, for comparison: no look at the inputs.
FoldMethod equalizer_fold();
// AWQ: scales by exponent search, then clipped groups.
FoldMethod awq_fold();

}  // namespace leq
