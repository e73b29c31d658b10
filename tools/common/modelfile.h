// Names that `leq create` makes: a model, a system prompt and parameters in the form of Ollama's
// Modelfile, kept as NAME.modelfile in the models folder. Every command takes such a name.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sampling/settings.h"
#include "tools/common/model_name.h"
#include "tools/common/options.h"

namespace leq {

// The option of the tools, as "ctx-size", for a parameter by Ollama's name, as "num_ctx". Throws
// Error that says what to do if the parameter is known and has no option here, or is not known.
std::string option_of_parameter(std::string_view name);

// Ollama's name of a sampling setting.
std::string name_of_parameter(const SamplingParameter& parameter);

struct Modelfile {
  std::string from;                                                  // a path, or a name of a model
  std::string system;                                                // empty: none
  std::vector<std::pair<std::string, std::string>> parameters = {};  // by Ollama's names
  std::vector<std::string> notes = {};   // about instructions that are not taken
  std::vector<std::string> places = {};  // of the parameters that were read: "Modelfile:3"
};

// Throws Error naming `source` and the line of an instruction that is unknown, incomplete or cannot
// be followed.
Modelfile read_modelfile(std::string_view text, const std::string& source);
Modelfile load_modelfile(const std::filesystem::path& path);
// The text that read_modelfile reads.
std::string modelfile_text(const Modelfile& file);
// The parameters alone, a line each, as Ollama prints them.
std::string parameters_text(const Modelfile& file);
// The options that set the same, with their values: "temp", "0.5".
std::vector<std::pair<std::string, std::string>> options_of(const Modelfile& file);

// The created names, sorted; the path is that of the Modelfile.
std::vector<KeptModel> created_models();
// The file of a created name, with or without ":latest", which may not exist. Throws Error if this
// cannot be a name.
std::filesystem::path created_path(const std::string& name);
// nullopt if no such name was created.
std::optional<Modelfile> find_created(const std::string& name);
// The same where a model is expected: nullopt also if there is a file of this name, which wins.
std::optional<Modelfile> settings_named(const std::string& name);

// Sets what the file has wherever `options` has it and nothing is given. Returns the options that
// are not declared.
std::vector<std::string> set_missing(const Modelfile& file, Options& options);
// Returns the model that a created name stands for, and sets what its Modelfile has; a note says
// what the tool does not take. Returns other names as they are.
std::string follow_created(const std::string& name, Options& options);

}  // namespace leq
