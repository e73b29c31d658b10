// Models of the hub as .leq files in the models folder: downloads a repository, and quantizes its
// checkpoint, meanwhile if no calibration is needed, or converts its GGUF file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/hub.h"
#include "tools/common/model_name.h"
#include "tools/common/options.h"

namespace leq {

// What a tool's positional MODEL may be, for its help.
inline constexpr std::string_view kModelNames =
    "MODEL is a file, a model of `leq ls`, or a model on the Hugging Face hub, which is downloaded "
    "once: Qwen/Qwen3-0.6B, hf.co/USER/REPOSITORY:Q4_K_M, or a short name as qwen3:0.6b "
    "(docs/models.md).";

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
// The file of a model by any name: a path, a model of the models folder, or a hub name, which is
// pulled. Throws Error if it is none of these.
std::string model_by_name(const std::string& name, const Options& options);

// The same for a checkpoint, which is not quantized; returns other names as they are.
std::string checkpoint_by_name(const std::string& name);

// The repository and commit of which a file of the models folder was made; "" if it was not.
std::string origin_of(const std::filesystem::path& file);
std::filesystem::path origin_file(const std::filesystem::path& file);

}  // namespace leq
