// Options of all tools that write replies: sampling and drafts.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "generate/settings.h"
#include "model/open_model.h"
#include "tools/common/options.h"

namespace leq {

// --seed and an option for each setting of sampling.
std::vector<Option> sampling_options();
GivenSampling read_sampling(const Options& options);

// --speculate, -md, --draft-max
std::vector<Option> speculation_options(const std::string& group);
// Values of --speculate: all ways, tokens found in the text, the model's own head, none.
inline constexpr std::array<const char*, 4> kSpeculations = {"auto", "ngram", "mtp", "off"};
// Whether the model's head of multi-token prediction drafts; false for tools that write no replies.
// Throws Error where it is asked for and there is none.
bool drafts_by_mtp(const Options& options, const Model& model);
// EngineOptions::speculate and find_drafts.
bool speculates(const Options& options);
bool finds_drafts(const Options& options);

}  // namespace leq
