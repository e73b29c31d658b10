// Free text with triggers: any text is allowed until a mark appears, whose rule restricts the text
// after it. Modes are the phases of a reply (reasoning, content, between calls), each with its own
// marks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grammar/grammar.h"

namespace leq {

// In the text of a mark: matches any number of blanks. The text around it must contain no blank.
inline constexpr char kAnyBlanks = '\0';

struct WatchMark {
  std::string text;  // not empty, and not ending in kAnyBlanks
  // The rule that restricts the text after the mark; nullopt: no restriction.
  std::optional<std::int32_t> rule = {};
  std::size_t next = 0;  // the mode after the mark and its rule
};

struct WatchMode {
  // Searched for everywhere. Texts contain no kAnyBlanks, and no mark contains another.
  std::vector<WatchMark> anywhere = {};
  // Searched for only at the beginning of the mode; no mark begins another. They take precedence.
  std::vector<WatchMark> at_start = {};
  bool closed = false;  // no text may follow
};

// Where a text may end: everywhere, or only in a closed mode.
enum class WatchEnd : std::uint8_t { anywhere, closed };

// Starts in the mode `first`. Throws Error if it needs more states than a grammar may have.
GrammarBuilder::Expr watched_text(GrammarBuilder& builder, const std::vector<WatchMode>& modes,
                                  std::size_t first, WatchEnd end);

}  // namespace leq
