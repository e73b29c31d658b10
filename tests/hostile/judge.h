// The rules that apply to every run of a tool on hostile input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hostile/child.h"
#include "hostile/folder_state.h"

namespace leq::hostile {

// The allowed results of a case. Damage that cannot be detected (a bit of a weight, if no checksum
// is verified) may pass; violations of a format's guarantees must be refused.
enum class Expect : std::uint8_t { refused, either, accepted };

// Lines besides the error: progress before it; in a chat, which continues, also after it.
enum class Talk : std::uint8_t { none, before, around };

struct Expectation {
  Expect expect = Expect::either;
  // The error must contain one of these: names of files, spellings of options.
  std::vector<std::string> names;
  // Paths in the folder that a successful run may create or replace; "kept/*": all below it.
  std::vector<std::string> outputs;
  Talk talk = Talk::none;
  std::string answer = {};  // result of said_in for the last answer, if known
};

struct Verdict {
  std::string rule;  // empty if no rule is broken
  std::string text;
  explicit operator bool() const { return rule.empty(); }
};

// `tool`: "leq-run". Returns the first broken rule among: signal, hang, status, shape, lines,
// internal, control, name, passed, refused, answer, litter, changed.
Verdict judge(const std::string& tool, const Ended& ended, const FolderChanges& changed,
              const Expectation& expectation);

}  // namespace leq::hostile
