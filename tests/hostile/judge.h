// The rules that hold for every run of a tool on hostile input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hostile/child.h"
#include "hostile/folder_state.h"

namespace leq::hostile {

// What a tool may do with a case. Damage that nothing could notice (a weight's bit, where no
// checksum is asked for) may pass; what the formats promise to hold must be refused.
enum class Expect : std::uint8_t { refused, either, accepted };

// Lines beside the error: of progress before it, and after it too in a chat, which goes on.
enum class Talk : std::uint8_t { none, before, around };

struct Expectation {
  Expect expect = Expect::either;
  // One of these must stand in the error: names of files, spellings of options.
  std::vector<std::string> names;
  // Paths below the folder that a run which ends well may make or replace; "kept/*" is all below.
  std::vector<std::string> outputs;
  Talk talk = Talk::none;
  std::string answer = {};  // what said_in tells of the last answer, where that is known
};

struct Verdict {
  std::string rule;  // empty where all is well
  std::string text;
  explicit operator bool() const { return rule.empty(); }
};

// `tool`: "leq-run". The first rule that is broken, of: signal, hang, status, shape, lines,
// internal, control, name, passed, refused, answer, litter, changed.
Verdict judge(const std::string& tool, const Ended& ended, const FolderChanges& changed,
              const Expectation& expectation);

}  // namespace leq::hostile
