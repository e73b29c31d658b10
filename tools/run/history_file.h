// What was typed in chats, for the arrow keys of the next one: a file of lines, each a JSON string.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace leq::run {

inline constexpr std::size_t kHistoryLines = 1000;

// $LEQ_HISTORY where it is set, empty for none; else $XDG_STATE_HOME/leq/history or
// ~/.local/state/leq/history.
std::filesystem::path history_path();

// Both only save typing: where they cannot do their work they do nothing.
// The last kHistoryLines, oldest first. A file that has become twice as long is cut to these.
std::vector<std::string> read_history(const std::filesystem::path& path);
// At the end, so that several chats may write; the file is made for its owner alone.
void append_history(const std::filesystem::path& path, const std::string& text);

}  // namespace leq::run
