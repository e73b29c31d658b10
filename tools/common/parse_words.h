// The words of a command line by the options that they belong to, before any value is looked at.
// cxxopts parses; what it has no notion of is put into its terms first: one dash before several
// letters (-ctk), numbers that touch their letter (-t8), _ for -, words that undo a flag.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/common/options.h"

namespace leq {

struct GivenOption {
  std::string name;      // the long one: "ctx-size"
  std::string word;      // as typed: "-c"
  std::string value;     // flags without a value: "1"
  bool negated = false;  // "--no-name"
};
struct ParsedWords {
  std::vector<GivenOption> options;  // in the order of the words, repeated ones too
  std::vector<std::string> positionals;
  std::vector<std::string> notes;  // of foreign words that do nothing here
};

// Throws Error naming a word that is unknown (and the nearest that is known), foreign and refused,
// lacks its value, or is one argument too many.
ParsedWords parse_words(const ToolSpec& tool, std::span<const std::string> words);

}  // namespace leq
