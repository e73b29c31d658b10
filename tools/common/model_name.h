// Names of models: hub names, short names, and the files of the models folder, which are made of
// repositories of the hub.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leq {

inline constexpr std::string_view kMainRevision = "main";

// A model on the hub: "Qwen/Qwen3-0.6B", "hf.co/org/repo:Q4_K_M@revision", the same as
// "org/repo@revision:Q4_K_M", or a short name, "qwen3:0.6b".
struct HubName {
  std::string repository;  // "Qwen/Qwen3-0.6B"
  std::string tag = {};    // a GGUF file's type, a recipe or a type; empty: the default
  std::string revision = std::string(kMainRevision);
  std::string family = {};  // the text, if it is a short name without the size

  // The beginning of its models' names: the repository, with "@revision" unless that is "main".
  std::string place() const;
};
// The name without ":latest", Ollama's word for no tag.
std::string_view without_latest(std::string_view name);
// nullopt if the text is neither a short name nor has the form of a hub name.
std::optional<HubName> parse_hub_name(std::string_view text);
// Whether a name that is no file may be on the hub: its first part is not a folder here.
bool is_on_hub(const std::string& name);
// A name on the hub without the hub's address, as place() and the tag; other names as they are.
std::string whole_name(const std::string& name);
// A name for a repository: "qwen3:0.6b". The first one of a family is also meant by "qwen3".
struct ShortName {
  std::string_view name, repository;

  std::string_view family() const { return name.substr(0, name.find(':')); }
  // Whether the hub asks for the consent of the user to a licence.
  bool gated() const;
};
std::span<const ShortName> short_names();
// The short names of a family, the default first.
std::vector<std::string> sizes_of(std::string_view family);
// Throws Error that says what to do with a name that resembles a short name: a family that leq does
// not run, a size that its family does not have, or Ollama's name of a file.
void refuse_known_name(std::string_view name);

// $LEQ_MODELS, otherwise leq/models in $XDG_DATA_HOME or ~/.local/share; nullopt if none of these
// variables is set, where models_folder throws Error.
std::optional<std::filesystem::path> find_models_folder();
std::filesystem::path models_folder();

// A file in the models folder, or in the cache of conversions.
struct KeptModel {
  std::string
      name;  // "Qwen/Qwen3-0.6B:int8-g128", "a/b@v2:q8", or the file's name without .leq or .gguf
  std::filesystem::path path;
};
// The .leq and GGUF files of the models folder, sorted by name.
std::vector<KeptModel> kept_models();
// The conversions of GGUF files in a cache folder, named as the GGUF file, and if there are several
// versions NAME:IDENTITY; and the models that the Python package keeps there.
std::vector<KeptModel> conversions(const std::filesystem::path& cache);
// All that `leq ls` lists: kept_models, then the conversions of other GGUF files. Each has a name
// of its own.
std::vector<KeptModel> listed_models();
// The name of the listed model that a file is, or of which it is the conversion.
std::optional<std::string> listed_name(const std::filesystem::path& file);
// The same, otherwise the file's name: what reports call the model.
std::string report_name(const std::filesystem::path& file);
// "NAME.gguf" of a conversion in the cache, by the form of its name; "" of other files.
std::string converted_from(const std::filesystem::path& file);
// The file for a place on the hub, or the name of a checkpoint folder, and a tag:
// ORG--NAME--TAG.leq or NAME--TAG.leq, whose name is PLACE:TAG.
std::filesystem::path kept_file(const std::string& place, const std::string& tag);
// The listed models that a name fits best (match_name), the newest first: one, if it is as `leq ls`
// prints it; several, if it is a repository without a tag or a GGUF file of several versions.
std::vector<KeptModel> models_named(const std::string& name);
// The first of these.
std::optional<KeptModel> find_kept(const std::string& name);
// The path of the listed model of this name; other names and existing paths are returned as given.
std::string path_of_model(const std::string& name);

}  // namespace leq
