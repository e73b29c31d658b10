// Assigns the words of a command line to options, before values are checked. cxxopts does the
// parsing; unsupported forms are rewritten first: one dash before several letters (-ctk), numbers
// attached to a letter (-t8), _ instead of -, and words that negate a flag.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/common/options.h"

namespace leq {

struct GivenOption {
  std::string name;      // the long name: "ctx-size"
  std::string word;      // as typed: "-c"
  std::string value;     // "1" for flags without a value
  bool negated = false;  // given as "--no-name"
};
struct ParsedWords {
  std::vector<GivenOption> options;  // in the order of the words, including repetitions
  std::vector<std::string> positionals;
  std::vector<std::string> notes;  // about ignored options of other programs
};

// Throws Error naming a word that is unknown (with the closest known one), a refused option of
// another program, an option without its value, or a surplus argument.
ParsedWords parse_words(const ToolSpec& tool, std::span<const std::string> words);

}  // namespace leq
