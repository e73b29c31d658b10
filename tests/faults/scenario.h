// Whole runs of the tools that faults are put into, and what such a run should leave.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "faults/block.h"
#include "hostile/child.h"
#include "hostile/folder_state.h"
#include "hostile/samples.h"

namespace leq::faults {

struct Scenario {
  std::string name;
  std::string tool;
  std::vector<std::string> words;
  std::vector<std::string> copies;   // of the samples
  std::vector<std::string> outputs;  // files that it makes; "kept/texts-*": the one of that name
  // Words whose outputs are whole too: what lies there when all but a last step is done.
  std::vector<std::string> before_its_last_step = {};
  std::string input = {};
  bool same_out = true;    // what it prints does not depend on time
  bool resumable = false;  // the same command goes on with it
  // leq-server: what it is asked before it is told to end. It goes on without what fails, and says
  // so in an answer or a message that names the output.
  std::vector<hostile::Question> questions = {};
};

const std::vector<Scenario>& scenarios();

struct Outcome {
  hostile::Ended ended;
  hostile::FolderChanges changed;
  std::vector<std::string> files;  // contents of the outputs; "" where one is not there
  std::vector<bool> there;
  std::vector<std::string> names;     // of the outputs
  bool reached = false;               // the call was made
  std::vector<std::uint64_t> counts;  // by Call
};

struct Place {
  hostile::Tools tools;
  std::filesystem::path samples, preload;
  double seconds = 30;  // of one run
};

// Copies what a scenario needs into folder/work.
void prepare(const Place& place, const Scenario& scenario, const std::filesystem::path& folder);
// Runs it in folder/work, with `more` words after its own. `block` may be null: no faults.
Outcome run_scenario(const Place& place, const Scenario& scenario,
                     const std::filesystem::path& folder, Block* block,
                     const std::vector<std::string>& more = {});
std::string command_text(const Place& place, const Scenario& scenario,
                         const std::filesystem::path& folder);

}  // namespace leq::faults
