// Free text with triggers: anything is allowed until a mark appears, whose rule restricts what
// follows. Modes are the phases of a reply (thoughts, content, between calls), each with its own
// marks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generate/grammar/builder.h"

namespace leq {

// In the texts of marks: any number of blanks may stand here. Nothing else of the text may be one.
inline constexpr char kAnyBlanks = '\0';

struct WatchMark {
  std::string text;  // not empty, and not ending in kAnyBlanks
  // The rule that restricts the text after the mark; nullopt: none.
  std::optional<std::int32_t> rule = {};
  std::size_t next = 0;  // the mode after that
};

struct WatchMode {
  // Looked for everywhere; the texts hold no kAnyBlanks, and none is within another.
  std::vector<WatchMark> anywhere = {};
  // Looked for at the mode's beginning alone; none begins another. They win.
  std::vector<WatchMark> at_start = {};
  bool closed = false;  // nothing may be written here
};

// Where a text may end: everywhere, or in a closed mode alone.
enum class WatchEnd : std::uint8_t { anywhere, closed };

// From the mode `first` on. Throws Error on more states than a grammar may have.
GrammarBuilder::Expr watched_text(GrammarBuilder& builder, const std::vector<WatchMode>& modes,
                                  std::size_t first, WatchEnd end);

}  // namespace leq
