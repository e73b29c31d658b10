// Models of the hub, and checkpoint folders, as .leq files in the models folder: downloads a
// repository, and quantizes its checkpoint, meanwhile if no calibration is needed, or converts its
// GGUF file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hub/hub.h"
#include "tools/common/model_name.h"
#include "tools/common/options.h"

namespace leq {

// What a tool's positional MODEL may be, for its help.
inline constexpr std::string_view kModelNames =
    "MODEL is a .leq or GGUF file, a folder of safetensors, a model of `leq ls`, or a model on the "
    "Hugging Face hub, which is downloaded once: Qwen/Qwen3-0.6B, hf.co/USER/REPOSITORY:Q4_K_M, or "
    "a short name as qwen3:0.6b (docs/models.md).";

// The type of a checkpoint that is quantized on the way: rounded to nearest, no calibration text.
inline constexpr const char* kDefaultType = "int8-g128";

// The options of tools that download: -hf and what belongs to it.
std::vector<Option> hub_options();
// --recipe -hff -hft --offline, which name no model.
std::vector<Option> download_options();

// The files of a repository that make one model.
struct HubChoice {
  std::vector<HubFile> files;
  std::string gguf;  // the GGUF file, or its first part; empty: a checkpoint
  std::string tag;   // names the model in the models folder; empty: a checkpoint's default
};
// `file`: a GGUF file's name, or "". Throws Error that lists the GGUF types if there is no such
// file.
HubChoice choose_files(const HubRepository& repository, const std::string& tag,
                       const std::string& file);

// Returns the model's file in the models folder, which is made if it is missing or, with `update`,
// if the hub has another commit. `options` has download_options().
KeptModel pull_model(const HubName& name, const Options& options, bool update);
// Whether the path is a folder with a config.json.
bool is_checkpoint(const std::filesystem::path& folder);
// The same for a checkpoint folder. A folder in the hub's cache is the repository that it is of;
// another one has a model of its own name, which is made again if its files have changed.
KeptModel keep_checkpoint(const std::filesystem::path& folder, const Options& options);
// The path of a model that is here: a file, a checkpoint folder or a listed model; nullopt if there
// is none. Throws Error if a flag chooses the type or the file of a model that is a file already.
std::optional<std::string> model_here(const std::string& name, const Options& options);
// The file of a model by any name: a path, a listed model (model_name.h), or a checkpoint folder or
// hub name, of which one is made. Throws Error if it is none of these.
std::string model_by_name(const std::string& name, const Options& options);

// The path of a checkpoint, which is downloaded and not quantized, or of a listed model; returns
// other names as they are.
std::string checkpoint_by_name(const std::string& name);

// What a file of the models folder was made of: a repository and commit, "Qwen/Qwen3-0.6B@c1899d",
// or the path of a folder and the version of its files; "" if it was not made.
std::string origin_of(const std::filesystem::path& file);
std::filesystem::path origin_file(const std::filesystem::path& file);

// The line at the start of a conversion: what is made, its size, about how long it takes on all
// cores, and what else is to be known of the time.
std::string start_line(const std::string& what, std::uint64_t bytes, double core_seconds,
                       const std::string& more = "");

}  // namespace leq
