#include "tools/common/model_file.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <optional>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "base/text.h"
#include "format/gguf_source.h"
#include "format/leq_layout.h"
#include "quantize/run/quantize.h"
#include "tools/common/pull.h"
#include "tools/common/setting_flags.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

// Characters that need no quoting in a shell and may occur in hub names; others are quoted.
bool is_plain(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return letter || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '/';
}
std::string typed(const fs::path& path) {
  std::string text = printable(path.string(), 4096);
  if (std::ranges::all_of(text, is_plain) && !text.starts_with('-')) return text;
  return "'" + replace_all(text, "'", "'\\''") + "'";
}

fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

// Returns the output name for a folder: "models/Qwen" -> "Qwen.leq"; empty for ".".
std::string file_for(const fs::path& folder) {
  const fs::path name = without_slash(folder).filename();
  const bool nameless = name.empty() || name == "." || name == "..";
  return typed(nameless ? fs::path("model.leq") : fs::path(name.string() + ".leq"));
}

std::string quantize_command(const fs::path& folder) {
  return "`leq-quantize " + typed(without_slash(folder)) + " -o " + file_for(folder) + "`";
}

bool is_checkpoint(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "config.json", ignored);
}

// Returns up to three .leq files in the folder, which are suggested if a file name is wrong.
std::string files_beside(const fs::path& path) {
  constexpr std::size_t kMaxFiles = 3;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".leq")
      names.push_back(printable(it->path().filename().string()));
  }
  if (names.empty()) return "";
  std::ranges::sort(names);
  const bool more = names.size() > kMaxFiles;
  names.resize(std::min(names.size(), kMaxFiles));
  return "; " + folder.string() + " has " + join(names) + (more ? ", ..." : "");
}

[[noreturn]] void fail_missing(const std::string& place, const std::string& path, bool runs) {
  require(!is_on_hub(path), place, ": no such file; the model of that name on the Hugging Face ",
          "hub is downloaded and run by `leq run ", path, "`");
  fail(ErrorKind::io, place, ": no such file or folder", runs ? files_beside(path) : "");
}

// A name that is no file may be that of a model in the models folder.
std::string kept_path(const std::string& given) {
  std::error_code error;
  if (fs::exists(given, error)) return given;
  const auto kept = find_kept(given);
  return kept ? kept->path.string() : given;
}

}  // namespace

bool begins_as_leq_file(const fs::path& path) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return false;  // opening a pipe would block
  std::array<char, kLeqMagic.size()> magic{};
  std::ifstream file(path, std::ios::binary);
  return file.read(magic.data(), magic.size()) && magic == kLeqMagic;
}

void check_model_file(const std::string& word, const std::string& path) {
  const std::string place = word + (word.empty() ? "" : " ") + printable(path, 4096);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) fail_missing(place, path, true);
  if (status.type() == fs::file_type::directory) {
    require(!is_checkpoint(path), place,
            ": is a checkpoint folder, and a .leq file is what runs: ", quantize_command(path),
            " makes one");
    refuse_adapter(path);
    fail(place, ": is a folder without config.json, expected a .leq file");
  }
  const fs::path parent = fs::path(path).parent_path();
  const std::string extension = fs::path(path).extension().string();
  require(extension != ".safetensors" && extension != ".bin" && extension != ".pth", place,
          ": is a part of a checkpoint, and a .leq file is what runs: ",
          quantize_command(parent.empty() ? fs::path(".") : parent), " makes one of the folder");
  require(!begins_as_gguf_file(path), place,
          ": is a GGUF file, and a .leq file is what is looked into: ", "`leq-quantize ",
          typed(path), " -o ", file_for(fs::path(path).replace_extension()), "` makes one");
  refuse_lfs_pointer(path);
  require(extension != ".gguf" || begins_as_leq_file(path), place,
          ": has the name of a GGUF file and does not begin as one does");
}

void check_checkpoint_folder(const std::string& path) {
  const std::string place = printable(path, 4096);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) fail_missing(place, path, false);
  if (status.type() == fs::file_type::directory || error || begins_as_gguf_file(path)) return;
  refuse_lfs_pointer(path);
  const std::string extension = fs::path(path).extension().string();
  const fs::path parent = fs::path(path).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  require(!begins_as_leq_file(path), place, ": is quantized already: `leq-run -m ", typed(path),
          "` runs it; to quantize it differently, give its checkpoint folder");
  require(extension != ".leq", place, ": has the name of a .leq file and ",
          fs::file_size(path, error) == 0 ? "is empty" : "does not begin as one does",
          "; expected a checkpoint folder or a GGUF file");
  require(!is_checkpoint(folder), place,
          ": is one file of a checkpoint, expected the folder: ", quantize_command(folder));
  require(extension != ".gguf", place,
          ": has the name of a GGUF file and does not begin as one does");
  fail(place, ": is a file, expected a checkpoint folder with config.json, *.safetensors and ",
       "tokenizer.json or tokenizer.model, or a GGUF file");
}

void choose_model(Options& options) {
  if (!options.declares("hf-repo")) return;
  if (options.given("hf-repo")) {
    require(!options.given("model"), "-m and -hf both name a model: leave one out");
    const auto name = parse_hub_name(options.text("hf-repo"));
    require(name.has_value(), "-hf ", printable(options.text("hf-repo")),
            ": expected USER/REPOSITORY or USER/REPOSITORY:TAG");
    options.set_text("model", pull_model(*name, options, false).path.string());
  } else if (!options.given("model") ||  // a model and a prompt win over LEQ_ARG_MODEL
             (options.from_environment("model") && options.positionals().size() > 1)) {
    require(!options.positionals().empty(), "a model is missing: give its name or file, as -m ",
            "model.leq or -hf Qwen/Qwen3-0.6B; `leq ls` lists the models that are here");
    options.set_text("model", model_by_name(options.take_positional(), options));
  }
}

int with_model_files(const Options& options, const std::function<int(const Options&)>& body,
                     bool outlines) {
  Options resolved = options;
  choose_model(resolved);
  std::vector<NamelessFile> in_memory;  // kept until the tool ends
  for (const char* name : {"model", "model-draft"}) {
    if (!options.declares(name)) continue;
    resolved.replace_texts(name, [&](const std::string& given) {
      const std::string path = kept_path(given);
      const bool folder = is_checkpoint(path);
      if (outlines && (folder || begins_as_gguf_file(path))) {
        std::cerr << printable(path, 4096) << ": an estimate from its header, "
                  << (folder ? "as quantized to " + std::string(kDefaultType) + " or kept"
                             : "as converted")
                  << '\n';
        in_memory.push_back(outline_of(path, kDefaultType));
        return in_memory.back().path();
      }
      if (!begins_as_gguf_file(path)) return path;
      std::optional<Progress> line;
      ConversionEvents events;
      events.begin = [&](const std::filesystem::path& output) {
        std::cerr << "converting " << printable(path, 4096) << ", this once, to "
                  << printable(output.string(), 4096) << '\n';
      };
      events.say = [](const std::string& text) { std::cerr << with_flags(text) << '\n'; };
      events.progress = [&](std::int64_t done, std::int64_t total) {
        if (!line) line.emplace("converting", total, "tensors");
        line->update(done);
        if (done == total) line->clear();
      };
      if (!options.declares("cache") || options.flag("cache")) {
        return convert_in_cache(path, conversion_cache(), events).string();
      }
      in_memory.push_back(convert_in_memory(path, events));
      return in_memory.back().path();
    });
  }
  return body(resolved);
}

}  // namespace leq
