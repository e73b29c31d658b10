// leq-perplexity --kl-by: which layers or sites of a quantized model lose most.
#pragma once

#include "eval/divergence_base.h"
#include "eval/perplexity.h"
#include "tools/common/model_setup.h"
#include "tools/common/options.h"

namespace leq {

// Prints a row for each part of setup's model: KL divergence from the model of `base` where this
// part alone is quantized, in nats; the worst first.
void print_kl_by(const Options& options, const Runtime& setup, const PerplexityRun& run,
                 const DivergenceBaseReader& base, const DivergenceKey& key);

}  // namespace leq
