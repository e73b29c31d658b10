// Model files of a folder, the models' names, and the other spellings that mean a model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace leq {

// Whose name a model has.
enum class NameOf : std::uint8_t {
  file,
  settings,  // a name of `leq create`: a file, and what requests have by default
  nothing,   // a file that is served under names of settings alone
};

struct ModelFile {
  std::string name;  // the file's name without .leq or .gguf
  std::filesystem::path path;
  std::uint64_t bytes = 0;                           // sum over all parts of a GGUF file
  std::filesystem::file_time_type::rep changed = 0;  // modification time
  std::int64_t created = 0;                          // modification time in seconds since 1970
  NameOf name_of = NameOf::file;
  bool operator==(const ModelFile&) const = default;
};

// The files that end in .leq or .gguf, sorted by name; only the first part of a split GGUF file. If
// a .leq and a GGUF file have the same name, the GGUF file's name keeps its extension. Throws Error
// if the folder cannot be read.
std::vector<ModelFile> models_in(const std::filesystem::path& folder);
// The path of a GGUF file without ".gguf" and the numbers of a part at its end: of
// "story-00002-of-00003.gguf" they are "story", "00002" and "00003".
struct GgufPath {
  std::string_view model;
  std::string_view number = {}, count = {};  // empty: it is the only file

  bool is_first() const { return number.empty() || number == "00001"; }
  bool same_model(const GgufPath& other) const {
    return model == other.model && count == other.count;
  }
};
GgufPath gguf_path(std::string_view path);
// One file, with its size and times as far as they can be read.
ModelFile model_file(std::string name, const std::filesystem::path& path);
// The model's name for its path: "folder/story.leq" or "folder/story.gguf" -> "story".
std::string model_name_of(const std::string& path);

// How well a name that somebody wrote fits a model, worst first.
enum class NameMatch : std::uint8_t {
  none,
  untagged,  // "Qwen/Qwen3-0.6B" of "Qwen/Qwen3-0.6B:q4"
  spelling,  // in other letters, with .leq, .gguf or :latest at its end, or the name of its file
  exact
};
// `whole`: the same name in its whole form, such as that of a repository for a short one; the
// better match of both counts.
NameMatch match_name(std::string_view wanted, std::string_view whole, std::string_view name,
                     const std::filesystem::path& file);

}  // namespace leq
