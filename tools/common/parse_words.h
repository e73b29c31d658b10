// Assigns the words of a command line to options, before values are checked. cxxopts parses; forms
// that it does not support are rewritten first: one dash before several letters (-ctk), numbers
// attached to a letter (-t8), _ for -, words that negate a flag.
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
  bool negated = false;  // given as "--no-name"
};
struct ParsedWords {
  std::vector<GivenOption> options;  // in the order of the words, with repetitions
  std::vector<std::string> positionals;
  std::vector<std::string> notes;  // on foreign words without effect
};

// Throws Error naming a word that is unknown (with the closest known one), foreign and refused,
// without its value, or one argument too many.
ParsedWords parse_words(const ToolSpec& tool, std::span<const std::string> words);

}  // namespace leq
