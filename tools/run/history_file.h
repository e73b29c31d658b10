// Places of chats in the user's folder, and the input history of chats, a file with one JSON string
// per line.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace leq::run {

inline constexpr std::size_t kHistoryLines = 1000;

// $XDG_STATE_HOME/leq or ~/.local/state/leq; empty if there is no home.
std::filesystem::path state_folder();
// Returns $LEQ_HISTORY if it is set (empty: no history), otherwise a file in state_folder().
std::filesystem::path history_path();

// The file of a chat saved by name. Throws Error if it is no name: letters, digits, '-' and '_'.
std::filesystem::path named_chat_path(std::string_view name);
bool is_chat_name(std::string_view name);
std::filesystem::path named_chat_folder();
std::vector<std::string> saved_chat_names();  // sorted

// Both functions fail silently, because history is only a convenience. read_history returns the
// last kHistoryLines lines, oldest first; a file with more than twice as many is cut to these.
std::vector<std::string> read_history(const std::filesystem::path& path);
// Appends, so that several chats may write; a new file is readable only by its owner.
void append_history(const std::filesystem::path& path, const std::string& text);

}  // namespace leq::run
