// leq-perplexity --kl-by: finds the layers or sites of a quantized model that lose the most.
#pragma once

#include "eval/divergence.h"
#include "eval/perplexity.h"
#include "tools/common/model_setup.h"
#include "tools/common/options.h"

namespace leq {

// Prints one row for each part of setup's model: the KL divergence in nats from the model of `base`
// if only this part is quantized; sorted, worst first.
void print_kl_by(const Options& options, const Runtime& setup, const PerplexityRun& run,
                 const DivergenceBaseReader& base, const DivergenceKey& key);

}  // namespace leq
