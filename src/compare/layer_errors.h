// A quantized model's error layer by layer, and the predictions of the paper's theorems 7 and 10
// for errors that propagate through layers.
#pragma once

#include "base/json.h"
#include "compare/workbench.h"

namespace leq {

// The hidden states H after each layer l of the unquantized model, and H' of the quantized one,
// over the windows; the embedding comes first, as layer -1:
//   local  |f'_l(H) - f_l(H)| / |H_l|: the layer's own error e_l, on the inputs of the unquantized
//          model
//   gain   g_l = |f_l(H') - f_l(H)| / |H' - H|: how much the unquantized layer amplifies its input
//          error (the norm of the theorem's Jacobian in the direction of this error)
//   error  |H'_l - H_l| / |H_l|; sqnr_db, the same as -20 log10; cosine of H and H'
//   kl_alone  KL divergence if only this layer is quantized, and kl_alone_stderr
// and, all as shares of |H| after the last layer:
//   share_error   |H'_l - H_l|
//   share_bound   B_l = e_l + g_l B_(l-1), the theorem's sum with measured terms
//   share_linear  (l + 2) max e, as the theorems state
//   share_worst   max e x sum of C^i with C = max g, which their proof concludes with
Json measure_layers(Workbench& bench, const Candidate& candidate);

}  // namespace leq
