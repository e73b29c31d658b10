// leq-perplexity --choices: multiple-choice accuracy by log-likelihood.
#pragma once

#include "tools/common/options.h"

namespace leq {

// Prints both accuracies with confidence intervals; returns the exit status.
int answer_choices(const Options& options);

}  // namespace leq
