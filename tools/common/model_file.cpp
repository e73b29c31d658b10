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
#include "base/stopwatch.h"
#include "base/text.h"
#include "format/gguf_source.h"
#include "format/leq_layout.h"
#include "quantize/run/quantize.h"
#include "tools/common/modelfile.h"
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

std::string quantize_command(const fs::path& folder) {
  return "`leq-quantize " + typed(without_slash(folder)) + " -o " + output_for(folder) + "`";
}

// Returns up to three models in the folder, which are suggested if a file name is wrong.
std::string files_beside(const fs::path& path) {
  constexpr std::size_t kMaxFiles = 3;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::path extension = it->path().extension();
    if (extension == ".leq" || extension == ".gguf") {
      names.push_back(printable(it->path().filename().string()));
    }
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

constexpr std::string_view kWhatRuns =
    "; what runs are .leq and GGUF files, folders of safetensors with a config.json, and names of "
    "`leq ls` or the Hugging Face hub";

// The conversion of a GGUF file, with lines at its start and end. Returns the result of `convert`.
template <class Convert>
auto convert_with_lines(const std::string& path, Convert convert) {
  const std::string name = printable(fs::path(path).filename().string(), 4096);
  std::optional<Progress> line;
  std::optional<Stopwatch> watch;  // none if the conversion is in the cache
  ConversionEvents events;
  events.begin = [&](std::uint64_t bytes, double core_seconds) {
    std::cerr << start_line("converting " + name, bytes, core_seconds) << '\n';
    watch.emplace();
  };
  events.say = [](const std::string& text) { std::cerr << with_flags(text) << '\n'; };
  events.progress = [&](std::int64_t done, std::int64_t total) {
    if (!line) line.emplace("converting", total, "tensors");
    line->update(done);
    if (done == total) line->clear();
  };
  auto made = convert(events);
  if (watch) std::cerr << "converted " << name << " in " << fixed(watch->seconds(), 1) << " s\n";
  return made;
}

}  // namespace

std::string output_for(const fs::path& checkpoint) {
  fs::path name = without_slash(checkpoint).filename();
  if (name.extension() == ".gguf") name.replace_extension();
  const bool nameless = name.empty() || name == "." || name == "..";
  return typed(nameless ? fs::path("model.leq") : fs::path(name.string() + ".leq"));
}

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
    fail(place, ": is a folder without config.json", files_beside(fs::path(path) / "x"), kWhatRuns);
  }
  const std::string extension = fs::path(path).extension().string();
  require(!begins_as_gguf_file(path), place,
          ": is a GGUF file, and a .leq file is what is looked into: ", "`leq-quantize ",
          typed(path), " -o ", output_for(path), "` makes one");
  refuse_lfs_pointer(path);
  if (begins_as_leq_file(path) || extension == ".leq") return;
  require(extension != ".gguf", place,
          ": has the name of a GGUF file and does not begin as one does");
  if (status.type() != fs::file_type::regular) return;
  const fs::path parent = fs::path(path).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  require(!is_checkpoint(folder), place, ": is a part of a checkpoint: `leq run ", typed(folder),
          "` runs the folder, and ", quantize_command(folder), " makes a file of it");
  fail(place, ": is no model", kWhatRuns);
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
  if (options.declares("model")) {  // leq-bench takes several
    options.replace_texts("model",
                          [&](const std::string& name) { return follow_created(name, options); });
  }
  if (!options.declares("hf-repo")) return;
  if (options.given("hf-repo")) {
    require(!options.given("model"), "-m and -hf both name a model: leave one out");
    const auto name = parse_hub_name(options.text("hf-repo"));
    require(name.has_value(), "-hf ", printable(options.text("hf-repo")),
            ": expected USER/REPOSITORY or USER/REPOSITORY:TAG");
    return options.set_text("model", pull_model(*name, options, false).path.string());
  }
  if (!options.given("model") ||  // a model and a prompt win over LEQ_ARG_MODEL
      (options.from_environment("model") && options.positionals().size() > 1)) {
    require(!options.positionals().empty(), kNoModel);
    const std::string name = follow_created(options.take_positional(), options);
    std::error_code error;
    if (!fs::exists(name, error)) {
      return options.set_text("model", model_by_name(name, options));
    }
    options.set_text("model", name);
  }
  options.replace_texts("model", [&](const std::string& model) {
    return model_here(model, options).value_or(model);
  });
}

int with_model_files(const Options& options, const std::function<int(const Options&)>& body,
                     bool outlines) {
  Options resolved = options;
  choose_model(resolved);
  std::vector<NamelessFile> in_memory;  // kept until the tool ends
  for (const char* name : {"model", "model-draft", "kl-from"}) {
    if (!options.declares(name)) continue;
    resolved.replace_texts(name, [&](const std::string& given) {
      const std::string path = path_of_model(given);
      const bool folder = is_checkpoint(path);
      if (outlines && (folder || begins_as_gguf_file(path))) {
        std::cerr << printable(path, 4096) << ": an estimate from its header, "
                  << (folder ? "as quantized to " + std::string(kDefaultType) + " or kept"
                             : "as converted")
                  << '\n';
        in_memory.push_back(outline_of(path, kDefaultType));
        return in_memory.back().path();
      }
      if (folder) return keep_checkpoint(path, options).path.string();
      if (!begins_as_gguf_file(path)) return path;
      return convert_with_lines(path, [&](const ConversionEvents& events) {
        if (!options.declares("cache") || options.flag("cache")) {
          return convert_in_cache(path, conversion_cache(), events).string();
        }
        in_memory.push_back(convert_in_memory(path, events));
        return in_memory.back().path();
      });
    });
  }
  return body(resolved);
}

}  // namespace leq
