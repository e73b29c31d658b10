// Where a quantized model errs: layer by layer, beside what the paper's theorems 7 and 10 say of
// errors that pass through layers.
#pragma once

#include "base/json.h"
#include "compare/workbench.h"

namespace leq {

// Of the hidden states H after layer l of the unquantized model and those of the quantized one, over
// the windows: [{"layer", "local", "gain", "error", "bound", "worst_bound", "sqnr_db", "cosine",
// "kl_alone"}], all norms relative to |H|.
//   local  e_l = |f'_l(H) - f_l(H)|: the layer's own error, on the inputs of the unquantized model
//   gain   g_l = |f_l(H') - f_l(H)| / |H' - H|: what the unquantized layer makes of the error that
//          enters it (the norm of the theorem's Jacobian, as far as this error sees it)
//   error  |H' - H| after the layer, measured; sqnr_db = -20 log10 of it relative to |H|
//   bound  B_l = e_l + g_l B_(l-1), the theorem's sum with measured terms
//   worst_bound  max e x sum of C^i with C = max g: what the theorem's proof ends with
//   kl_alone  KL divergence where this layer alone is quantized, and its standard error
// A candidate whose residual stream is rotated has other hidden states: {"reason": ...}.
Json measure_layers(Workbench& bench, const Candidate& candidate);

}  // namespace leq
