// A program under limits, in a folder of its own: what a test of hostile input runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "hostile/ask.h"

namespace leq::hostile {

enum class Stdin : std::uint8_t { closed, nothing, text };

struct Command {
  std::vector<std::string> words;        // words[0] is the path of the program
  std::vector<std::string> environment;  // "NAME=value", besides what the test itself has
  Stdin standard_input = Stdin::nothing;
  std::string input;  // where standard_input is text
  // Not empty: once a line of its messages has this the program is asked these, one after another,
  // at the port that the line ends with, and then told to end (SIGTERM).
  std::string end_at = {};
  std::vector<Question> questions = {};
  std::filesystem::path folder;
};

struct Limits {
  double seconds = 20;              // of wall time; then it is killed
  std::uint64_t address_space = 0;  // bytes; 0 = no limit
  std::uint64_t file_bytes = std::uint64_t{1} << 30;
};

struct Ended {
  int status = -1;  // exit status, -1 where a signal ended it
  int signal = 0;
  bool timed_out = false;
  double seconds = 0;
  std::uint64_t peak_bytes = 0;
  std::string out, err;              // the first 4 MB of each
  std::vector<std::string> answers;  // to the questions
};

// `notes` is a folder for the streams of the program, beside the one that it runs in. The program
// has a process group of its own, killed as a whole at the end of its time, and no right to read
// what its mode forbids, even where the test runs as root.
Ended run_child(const Command& command, const Limits& limits, const std::filesystem::path& notes);

// As a shell would take it.
std::string shell_text(const Command& command);

// False where a root process here cannot give up reading everything.
bool modes_hold();

}  // namespace leq::hostile
