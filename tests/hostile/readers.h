// The files of a case, and the commands that read them.
#pragma once

#include <string>
#include <vector>

#include "hostile/child.h"
#include "hostile/judge.h"

namespace leq::hostile {

// The layout of a file's bytes, which determines how it can be damaged.
enum class Layout : std::uint8_t { leq, safetensors, json, text, prompts, folder, bytes };

struct Reader {
  std::string tool;
  std::vector<std::string> words;
  std::string input = {};                 // for standard input; empty: none
  std::vector<std::string> outputs = {};  // outputs of a successful run
  bool reads_all = true;  // every bit matters; if false, unread parts may be damaged
  Talk talk = Talk::none;
  std::string end_at = {};  // as in Command, like the questions
  std::vector<Question> questions = {};
};

// A kind of file to be damaged, given as one of the samples' files.
struct Target {
  std::string kind;                 // "config.json"
  std::vector<std::string> copies;  // sample files and folders that the commands need
  std::string file;                 // the file to damage; "kept/texts-*": the first match
  Layout layout = Layout::bytes;
  std::vector<Reader> readers = {};
  // Prefixes of JSON pointers ("/config/layers") whose members must exist, be in range and have
  // their type; "*" matches any name.
  std::vector<std::string> required = {};
  // Other copied files that an error may name: a shape in config.json, for example, may contradict
  // the weights' file.
  std::vector<std::string> also_named = {};
  int weight = 1;  // relative frequency among the cases
  // The tool continues without the file, with the same results.
  bool spared = false;
};

const std::vector<Target>& targets();
// Targets that only leq-server reads.
const std::vector<Target>& server_targets();

}  // namespace leq::hostile
