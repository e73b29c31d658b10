// Stores the input history of chats in a file for later chats, one JSON string per line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace leq::run {

inline constexpr std::size_t kHistoryLines = 1000;

// Returns $LEQ_HISTORY if it is set (empty: no history), otherwise $XDG_STATE_HOME/leq/history or
// ~/.local/state/leq/history.
std::filesystem::path history_path();

// Both functions fail silently, because history is only a convenience. read_history returns the
// last kHistoryLines lines, oldest first; a file with more than twice as many is cut to these.
std::vector<std::string> read_history(const std::filesystem::path& path);
// Appends, so that several chats may write; a new file is readable only by its owner.
void append_history(const std::filesystem::path& path, const std::string& text);

}  // namespace leq::run
