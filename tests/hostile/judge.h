// The rules that apply to every run of a tool on hostile input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hostile/child.h"
#include "hostile/folder_state.h"

namespace leq::hostile {

// The allowed results of a case. Damage that cannot be detected (a bit of a weight, if checksums
// are not verified) may pass; violations of a format's guarantees must be refused.
enum class Expect : std::uint8_t { refused, either, accepted };

// Allowed lines besides the error: progress before it; in a chat, which continues, also after it.
enum class Talk : std::uint8_t { none, before, around };

struct Expectation {
  Expect expect = Expect::either;
  // The error must contain one of these names of files or spellings of options.
  std::vector<std::string> names;
  // Paths that a successful run may create or replace; "kept/*" means everything below the folder.
  std::vector<std::string> outputs;
  Talk talk = Talk::none;
  std::string answer = {};  // result of said_in for the last answer, if known
};

struct Verdict {
  std::string rule;  // empty if no rule is broken
  std::string text;
  explicit operator bool() const { return rule.empty(); }
};

// `tool` is a name like "leq-run". Returns the first broken rule of: signal, hang, status, shape,
// lines, internal, control, name, passed, refused, answer, litter, changed.
Verdict judge(const std::string& tool, const Ended& ended, const FolderChanges& changed,
              const Expectation& expectation);

}  // namespace leq::hostile
