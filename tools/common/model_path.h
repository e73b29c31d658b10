// What people type where a model is meant, and is none: a checkpoint folder for a file, a name of
// the Hugging Face hub, one of a checkpoint's files. The errors say the next command to type.
#pragma once

#include <filesystem>
#include <string>

namespace leq {

// Whether a regular file begins as a .leq file does, whatever its name.
bool begins_as_leq_file(const std::filesystem::path& path);

// Throws Error, beginning with `word` and the path, where it is not a file that may be a .leq file.
void check_model_file(const std::string& word, const std::string& path);

// Throws Error where it is no folder, or one that holds no checkpoint.
void check_checkpoint_folder(const std::string& path);

}  // namespace leq
