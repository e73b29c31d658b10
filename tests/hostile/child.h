// Runs a program with limits in a folder of its own, for tests with hostile input.
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
  std::vector<std::string> environment;  // "NAME=value", in addition to the test's environment
  Stdin standard_input = Stdin::nothing;
  std::string input;  // used if standard_input is text
  // If not empty: once the program prints a line that contains this, it gets the questions one
  // after another at the port at the end of the line, and then SIGTERM.
  std::string end_at = {};
  std::vector<Question> questions = {};
  std::filesystem::path folder;
};

struct Limits {
  double seconds = 20;              // limit of wall time; then it is killed
  std::uint64_t address_space = 0;  // bytes; 0 = no limit
  std::uint64_t file_bytes = std::uint64_t{1} << 30;
};

struct Ended {
  int status = -1;  // exit status, -1 if a signal ended it
  int signal = 0;
  bool timed_out = false;
  double seconds = 0;
  std::uint64_t peak_bytes = 0;
  std::string out, err;              // the first 4 MB of each
  std::vector<std::string> answers;  // to the questions
};

// `notes` is a folder for the program's output, next to the folder it runs in. The program has its
// own process group, which is killed as a whole when its time is up, and cannot read files whose
// mode forbids this, even if the test runs as root.
Ended run_child(const Command& command, const Limits& limits, const std::filesystem::path& notes);

// Returns the command as a shell would accept it.
std::string shell_text(const Command& command);

// Returns false if a root process cannot give up its right to read every file.
bool modes_hold();

}  // namespace leq::hostile
