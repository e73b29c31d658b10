// Lists the files that cases damage, and the commands that read these files.
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

// A kind of file that is damaged, represented by one of the sample files.
struct Target {
  std::string kind;                 // "config.json"
  std::vector<std::string> copies;  // sample files and folders that the commands need
  std::string file;                 // the file to damage; "kept/texts-*": the first match
  Layout layout = Layout::bytes;
  std::vector<Reader> readers = {};
  // Prefixes of JSON pointers ("/config/layers") whose members must exist, have the right type and
  // be in range; "*" matches any name.
  std::vector<std::string> required = {};
  // Other copied files that an error may name, because for example a shape in config.json may
  // contradict the weights' file.
  std::vector<std::string> also_named = {};
  int weight = 1;  // relative frequency among the cases
  // If true, the tool continues without the file, with the same results.
  bool spared = false;
};

const std::vector<Target>& targets();
// Returns the targets that only leq-server reads.
const std::vector<Target>& server_targets();

}  // namespace leq::hostile
