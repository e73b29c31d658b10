// The options shared by the tools that run a model, with llama.cpp's spellings: model and device,
// and, for tools that generate replies, sampling and speculative decoding.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/open_model.h"
#include "sampling/settings.h"
#include "tools/common/options.h"

namespace leq {

// Without a group: -dev -ngl, and --vram --exact --numa.
std::vector<Option> device_options();
std::vector<Option> device_tuning_options();
// All options of opening and running a model, except those whose long names are in `left_out`.
std::vector<Option> model_options(std::initializer_list<std::string_view> left_out = {});

// --seed, and one option for each sampling setting.
std::vector<Option> sampling_options();
GivenSampling read_sampling(const Options& options);

// The options --speculate, -md, --draft-max.
std::vector<Option> speculation_options(const std::string& group);
// Values of --speculate: all methods, drafts found in the text, the model's MTP head, none.
inline constexpr std::array<const char*, 4> kSpeculations = {"auto", "ngram", "mtp", "off"};
// Returns whether drafts come from the model's multi-token prediction head; false for tools without
// replies. Throws Error if this is requested but the model has no such head.
bool drafts_by_mtp(const Options& options, const Model& model);
// The values of EngineOptions::speculate and find_drafts.
bool speculates(const Options& options);
bool finds_drafts(const Options& options);

}  // namespace leq
