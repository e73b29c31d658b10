// Options of all tools that write replies: sampling and drafts.
#pragma once

#include <string>
#include <vector>

#include "generate/settings.h"
#include "tools/common/options.h"

namespace leq {

// --seed and an option for each setting of sampling.
std::vector<Option> sampling_options();
GivenSampling read_sampling(const Options& options);

// --speculate, -md, --draft-max
std::vector<Option> speculation_options(const std::string& group);

}  // namespace leq
