// Complete runs of the tools into which faults are injected, and the expected results of such runs.
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
  std::vector<std::string> copies;   // sample files
  std::vector<std::string> outputs;  // files that it creates; "kept/texts-*": the one that matches
  // With these words the tool leaves the outputs as they are before the scenario's last step.
  std::vector<std::string> before_its_last_step = {};
  std::string input = {};
  bool same_out = true;    // its output does not depend on time
  bool resumable = false;  // the same command resumes it
  // Requests that are sent to leq-server before its SIGTERM. After a failure the server
  // continues, and reports the failure in an answer or in a message that names the output.
  std::vector<hostile::Question> questions = {};
};

const std::vector<Scenario>& scenarios();

struct Outcome {
  hostile::Ended ended;
  hostile::FolderChanges changed;
  std::vector<std::string> files;  // contents of the outputs; "" if absent
  std::vector<bool> there;
  std::vector<std::string> names;  // names of the outputs
  bool reached = false;            // whether the call was made
  std::uint32_t named_unsynced = 0;
  std::vector<std::uint64_t> counts;  // by Call
};

struct Place {
  hostile::Tools tools;
  std::filesystem::path samples, preload;
  double seconds = 30;  // time limit of one run
};

// Copies the files that a scenario needs to folder/work.
void prepare(const Place& place, const Scenario& scenario, const std::filesystem::path& folder);
// Runs it in folder/work with `more` words appended. If `block` is null, there are no faults.
Outcome run_scenario(const Place& place, const Scenario& scenario,
                     const std::filesystem::path& folder, Block* block,
                     const std::vector<std::string>& more = {});
std::string command_text(const Place& place, const Scenario& scenario,
                         const std::filesystem::path& folder);

}  // namespace leq::faults
