// The options shared by all tools that run a model, with llama.cpp's spellings.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/options.h"

namespace leq {

// Returns --numa -dev -ngl --vram --exact, in the help group `group`.
std::vector<Option> device_options(const std::string& group);
// -m -t --tp -tb -c -b -ub -np -ctk -ctv -dev -ngl --vram --exact --no-graph --mmap --no-mmap
// --mlock -v, except those whose long names are in `left_out`.
std::vector<Option> model_options(std::initializer_list<std::string_view> left_out = {});

}  // namespace leq
