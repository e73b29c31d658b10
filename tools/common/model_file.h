// Model files as users name them: errors for common mistakes in paths (a checkpoint folder instead
// of a file, a name on the Hugging Face hub, a file of a checkpoint), which suggest the next
// command; and GGUF files for tools that run .leq files, which are converted once, with the same
// values.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "tools/common/options.h"

namespace leq {

// Returns whether a regular file begins with the magic number of .leq files, whatever its name.
bool begins_as_leq_file(const std::filesystem::path& path);

// Throws Error, beginning with `word` and the path, if the file cannot be a .leq file.
void check_model_file(const std::string& word, const std::string& path);

// The name of a .leq file for a checkpoint, as typed into a shell: "models/Qwen" -> "Qwen.leq".
std::string output_for(const std::filesystem::path& checkpoint);

// Throws Error if the path is not a folder or the folder contains no checkpoint.
void check_checkpoint_folder(const std::string& path);

// The error of a tool that is given no model.
inline constexpr std::string_view kNoModel =
    "no model: name one, as model.leq, -m model.gguf, qwen3:0.6b or Qwen/Qwen3-0.6B; `leq ls` "
    "lists the models that are here";

// Sets -m to the file of the model that -hf or the first positional names, which may be downloaded.
void choose_model(Options& options);

// Calls choose_model, and `body` with options in which -m and -md (if the tool has them) name .leq
// files: a GGUF file is replaced by its conversion (quantize/run/quantize.h) in the cache folder
// or, with --no-cache, in memory until the tool ends, and a checkpoint folder by the model
// that keep_checkpoint makes. `outlines`: the file needs no weights, and a
// GGUF file or a checkpoint folder is replaced by the outline of what it would become. Returns the
// result of `body`.
int with_model_files(const Options& options, const std::function<int(const Options&)>& body,
                     bool outlines = false);

}  // namespace leq
