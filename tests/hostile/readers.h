// The files of a case and the commands that read them.
#pragma once

#include <string>
#include <vector>

#include "hostile/child.h"
#include "hostile/judge.h"

namespace leq::hostile {

// How the bytes of a file are laid out, which says how it can be damaged.
enum class Layout : std::uint8_t { leq, safetensors, json, text, prompts, folder, bytes };

struct Reader {
  std::string tool;
  std::vector<std::string> words;
  std::string input = {};                 // of standard input; none where empty
  std::vector<std::string> outputs = {};  // where it ends well
  bool reads_all = true;  // every bit counts; else what is not looked at may be damaged
  Talk talk = Talk::none;
  std::string end_at = {};  // of Command, as the questions
  std::vector<Question> questions = {};
};

// A kind of file that is damaged, as one of the samples' files.
struct Target {
  std::string kind;                 // "config.json"
  std::vector<std::string> copies;  // files and folders of the samples that the commands need
  std::string file;                 // the one that is damaged; "kept/texts-*": the first such
  Layout layout = Layout::bytes;
  std::vector<Reader> readers = {};
  // Beginnings of JSON pointers ("/config/layers") whose members must be there, in range and of
  // their type; a "*" stands for any one name.
  std::vector<std::string> required = {};
  // Other files of the copies that an error may name: a shape in config.json disagrees with the
  // weights' file.
  std::vector<std::string> also_named = {};
  int weight = 1;  // share among the cases
  // The tool goes on without the file, and what it does is the same.
  bool spared = false;
};

const std::vector<Target>& targets();
// Those that leq-server alone reads.
const std::vector<Target>& server_targets();

}  // namespace leq::hostile
