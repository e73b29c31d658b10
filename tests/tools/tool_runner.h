// Runs the built tools as a user would, and returns their output.
#pragma once

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "base/text.h"
#include "temporary_folder.h"
#include "tools/process.h"

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

using ToolRun = Finished;

// `tool` is a name such as "leq-inspect". `input` is passed to its standard input.
inline ToolRun run_program(const std::string& tool, const std::vector<std::string>& arguments,
                           const std::string& input = "") {
  std::vector<std::string> command = {std::string(LEQ_TOOLS_DIR) + "/" + tool};
  command.insert(command.end(), arguments.begin(), arguments.end());
  forget_own_peak();
  return run(command, input);
}

// Status 1 and one line, "leq-run: error: ...", that holds all parts.
inline void expect_tool_error(const Finished& run, const std::vector<std::string>& parts) {
  EXPECT_EQ(run.status, 1) << run.out;
  EXPECT_TRUE(std::regex_search(run.err, std::regex("^leq-[a-z]+: error: "))) << run.err;
  EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
  for (const std::string& part : parts) {
    EXPECT_NE(run.err.find(part), std::string::npos) << part << " in " << run.err;
  }
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
