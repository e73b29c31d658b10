// Errors for common mistakes in model paths: a checkpoint folder instead of a file, a name on the
// Hugging Face hub, a file of a checkpoint. The errors suggest the next command.
#pragma once

#include <filesystem>
#include <string>

namespace leq {

// Returns whether a regular file begins with the magic number of .leq files, whatever its name.
bool begins_as_leq_file(const std::filesystem::path& path);

// Throws Error, beginning with `word` and the path, if the file cannot be a .leq file.
void check_model_file(const std::string& word, const std::string& path);

// Throws Error if the path is not a folder or the folder contains no checkpoint.
void check_checkpoint_folder(const std::string& path);

}  // namespace leq
