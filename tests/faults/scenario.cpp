#include "faults/scenario.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace leq::faults {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

std::vector<Scenario> make_scenarios() {
  const Words quantize = {"sharded", "-o", "out.leq", "-t", "1"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Words calibrated = {"--samples", "2", "--length", "16"};
  std::vector<Scenario> all;
  all.push_back({.name = "quantize",
                 .tool = "leq-quantize",
                 .words = with(quantize, {"--type", "int8", "--no-gate"}),
                 .copies = {"sharded"},
                 .outputs = {"out.leq"}});
  all.push_back({.name = "quantize over a file",
                 .tool = "leq-quantize",
                 .words = {"sharded", "-o", "f32.leq", "-t", "1", "--type", "int8", "--no-gate"},
                 .copies = {"sharded", "f32.leq"},
                 .outputs = {"f32.leq"}});
  all.push_back({.name = "calibrate",
                 .tool = "leq-quantize",
                 .words = with(with(quantize, calibrated),
                               {"--method", "gptq", "--type", "int4-g32", "--no-gate"}),
                 .copies = {"sharded"},
                 .outputs = {"out.leq"},
                 .resumable = true});
  all.push_back({.name = "smooth with gate",
                 .tool = "leq-quantize",
                 .words = with(with(quantize, calibrated), {"--method", "smoothquant", "--gate",
                                                            "--heldout", "text.txt", "-t", "2"}),
                 .copies = {"sharded", "text.txt"},
                 .outputs = {"out.leq"},
                 .before_its_last_step = with(with(quantize, calibrated),
                                              {"--method", "smoothquant", "--no-gate", "-t", "2"}),
                 .resumable = true});
  all.push_back({.name = "search",
                 .tool = "leq-quantize",
                 .words = with(with(quantize, calibrated),
                               {"--search", "--method", "rtn", "--target-size", "120000", "--group",
                                "32", "--search-evals", "5", "--search-text", "text.txt"}),
                 .copies = {"sharded", "text.txt"},
                 .outputs = {"out.leq"},
                 .resumable = true});
  all.push_back(
      {.name = "complete",
       .tool = "leq-run",
       .words = {"-m", "int8.leq", "--raw", "-p", "the", "-n", "3", "--temp", "0", "-t", "3"},
       .copies = {"int8.leq"}});
  all.push_back({.name = "chat",
                 .tool = "leq-run",
                 .words = {"-m", "int8.leq", "-cnv", "-n", "2", "--temp", "0", "-s", "1", "-t", "1",
                           "--no-mmap"},
                 .copies = {"int8.leq"},
                 .outputs = {"kept.json"},
                 .input = "hello\n/save kept.json\n/exit\n"});
  all.push_back({.name = "receipt",
                 .tool = "leq-run",
                 .words = {"-m", "int8.leq", "-p", "the", "-n", "3", "-s", "1", "-t", "1",
                           "--prompt-cache", "kept.cache", "--receipt", "kept.json"},
                 .copies = {"int8.leq"},
                 .outputs = {"kept.cache", "kept.json"}});
  all.push_back({.name = "inspect",
                 .tool = "leq-inspect",
                 .words = {"int8.leq", "--json"},
                 .copies = {"int8.leq"}});
  all.push_back({.name = "verify",
                 .tool = "leq-inspect",
                 .words = {"int8.leq", "--verify"},
                 .copies = {"int8.leq"},
                 .same_out = false});
  all.push_back({.name = "tokenize",
                 .tool = "leq-inspect",
                 .words = {"sharded", "--tokenize", "text.txt"},
                 .copies = {"sharded", "text.txt"}});
  all.push_back(
      {.name = "perplexity",
       .tool = "leq-perplexity",
       .words = {"-m", "f32.leq", "-f", "text.txt", "--join", "none", "-c", "16", "--chunks", "2",
                 "-t", "2", "-o", "json", "--kl-divergence-base", "kept.kl"},
       .copies = {"f32.leq", "text.txt"},
       .outputs = {"kept.kl"}});
  all.push_back({.name = "serve",
                 .tool = "leq-server",
                 .words = {"-m", "int8.leq", "--port", "0", "-t", "1", "--slot-save-path", "kept"},
                 .copies = {"int8.leq", "kept"},
                 .outputs = {"kept/texts-*", "kept/story.bin"},
                 .same_out = false,
                 .questions = {hostile::kQuestion,
                               {"/slots/0?action=save", R"({"filename": "story.bin"})"}}});
  return all;
}

// Returns the path of an output relative to `folder`.
std::string name_of(const std::string& output, const fs::path& folder) {
  if (!output.ends_with('*')) return output;
  const std::string start = output.substr(0, output.size() - 1);
  for (const auto& [path, what] : hostile::state_of(folder)) {
    if (path.starts_with(start)) return path;
  }
  return output;
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> kScenarios = make_scenarios();
  return kScenarios;
}

void prepare(const Place& place, const Scenario& scenario, const fs::path& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder / "work");
  fs::create_directories(folder / "notes");
  for (const std::string& name : scenario.copies) {
    fs::copy(place.samples / name, folder / "work" / name, fs::copy_options::recursive);
  }
}

namespace {

hostile::Command command_of(const Place& place, const Scenario& scenario, const fs::path& folder,
                            const Words& more) {
  hostile::Command command;
  command.words = {place.tools.path(scenario.tool)};
  command.words.insert(command.words.end(), scenario.words.begin(), scenario.words.end());
  command.words.insert(command.words.end(), more.begin(), more.end());
  command.folder = folder / "work";
  command.input = scenario.input;
  if (!scenario.input.empty()) command.standard_input = hostile::Stdin::text;
  command.questions = scenario.questions;
  if (!scenario.questions.empty()) command.end_at = hostile::kListening;
  return command;
}

}  // namespace

Outcome run_scenario(const Place& place, const Scenario& scenario, const fs::path& folder,
                     Block* block, const Words& more) {
  hostile::Command command = command_of(place, scenario, folder, more);
  if (block != nullptr) {
    command.environment = {"LD_PRELOAD=" + place.preload.string(),
                           std::string(kBlockVariable) + "=" + block->path()};
  }
  const hostile::FolderState before = hostile::state_of(folder / "work");
  Outcome outcome;
  outcome.ended = run_child(command, {.seconds = place.seconds}, folder / "notes");
  outcome.changed = hostile::changes(before, hostile::state_of(folder / "work"));
  for (const std::string& each : scenario.outputs) {
    const std::string output = name_of(each, folder / "work");
    outcome.names.push_back(output);
    outcome.there.push_back(fs::exists(folder / "work" / output));
    outcome.files.push_back(hostile::read_bytes(folder / "work" / output));
  }
  if (block != nullptr) {
    outcome.reached = block->get().reached != 0;
    outcome.named_unsynced = block->get().named_unsynced;
    for (const auto& count : block->get().counts) outcome.counts.push_back(count);
  }
  return outcome;
}

std::string command_text(const Place& place, const Scenario& scenario, const fs::path& folder) {
  return shell_text(command_of(place, scenario, folder, {}));
}

}  // namespace leq::faults
