// Input history of chats for the next one: a file of lines, each a JSON string.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace leq::run {

inline constexpr std::size_t kHistoryLines = 1000;

// $LEQ_HISTORY where it is set, empty for none; else $XDG_STATE_HOME/leq/history or
// ~/.local/state/leq/history.
std::filesystem::path history_path();

// Both fail silently: history is only a convenience. The last kHistoryLines, oldest first. A file
// of more than twice that length is cut to them.
std::vector<std::string> read_history(const std::filesystem::path& path);
// Appends, so that several chats may write; the file is created for its owner alone.
void append_history(const std::filesystem::path& path, const std::string& text);

}  // namespace leq::run
