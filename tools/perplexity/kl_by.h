// leq-perplexity --kl-by: the layers or sites of a quantized model with the largest loss.
#pragma once

#include "eval/divergence_base.h"
#include "eval/perplexity.h"
#include "tools/common/model_setup.h"
#include "tools/common/options.h"

namespace leq {

// Prints a row for each part of setup's model: KL divergence in nats from the model of `base` if
// only this part is quantized; sorted, worst first.
void print_kl_by(const Options& options, const Runtime& setup, const PerplexityRun& run,
                 const DivergenceBaseReader& base, const DivergenceKey& key);

}  // namespace leq
