// Runs the built tools as a user would, and returns their output.
#pragma once

#include <fcntl.h>
#include <malloc.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "temporary_folder.h"

namespace leq::test {

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A child's peak memory starts with that of this process, whose memory it shares until it executes
// its program. This function resets the peak to the current usage (proc(5), clear_refs).
inline void forget_own_peak() {
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;
}

struct ToolRun {
  int status = -1;  // exit status; -1 if a signal ended the tool
  std::string out;
  std::string err;
  std::uint64_t peak_bytes = 0;  // peak resident memory
};

// `tool` is a name such as "leq-inspect". `input` is passed to its standard input.
inline ToolRun run_program(const std::string& tool, const std::vector<std::string>& arguments,
                           const std::string& input = "") {
  const TemporaryFolder folder;
  const std::string in = folder.write("in", input);
  const std::string out = (folder / "out").string();
  const std::string err = (folder / "err").string();
  std::vector<std::string> words = {std::string(LEQ_TOOLS_DIR) + "/" + tool};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  forget_own_peak();
  pid_t child = 0;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  require(failed == 0, words[0], ": cannot start");
  int status = 0;
  rusage used = {};
  ::wait4(child, &status, 0, &used);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_bytes(out), read_bytes(err),
          static_cast<std::uint64_t>(used.ru_maxrss) * 1024};
}

// Returns the option words in a help text: "-c", "--ctx-size".
inline std::vector<std::string> words_in_help(const std::string& help) {
  std::vector<std::string> words;
  for (const auto line : split(help, "\n")) {
    if (!line.starts_with("  -") && !line.starts_with("      --")) continue;
    const std::string_view left = trim(line);
    for (const auto part : split(left.substr(0, left.find("  ")), ", ")) {
      words.emplace_back(part.substr(0, part.find(' ')));
    }
  }
  return words;
}

}  // namespace leq::test
