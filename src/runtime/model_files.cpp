#include "runtime/model_files.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <system_error>
#include <utility>

#include "base/ascii.h"
#include "base/error.h"
#include "base/text.h"

namespace leq {

namespace fs = std::filesystem;

namespace {

std::int64_t unix_seconds(fs::file_time_type time) {
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration_cast<std::chrono::seconds>(system.time_since_epoch()).count();
}

void read_times(ModelFile& file) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(file.path, error);
  file.changed = time.time_since_epoch().count();
  file.created = unix_seconds(time);
}

void add(const fs::directory_entry& entry, std::map<std::string, ModelFile>& files) {
  std::error_code error;
  const std::string extension = entry.path().extension().string();
  const bool is_gguf = extension == ".gguf";
  if ((!is_gguf && extension != ".leq") || !entry.is_regular_file(error) || error) return;
  const std::string stem = entry.path().stem().string();
  if (stem.empty() || stem.front() == '.' || first_invalid_utf8(stem)) return;
  const GgufPath part = is_gguf ? gguf_path(stem) : GgufPath{stem};
  ModelFile& file = files[std::string(part.model) + extension];
  if (!part.is_first()) {
    file.bytes += entry.file_size(error);
    return;
  }
  file.name = part.model;
  file.path = entry.path();
  file.bytes += entry.file_size(error);
  read_times(file);
}

}  // namespace

GgufPath gguf_path(std::string_view path) {
  constexpr std::string_view kTail = "-00001-of-00003";
  if (path.ends_with(".gguf")) path.remove_suffix(std::string_view(".gguf").size());
  if (path.size() <= kTail.size()) return {path};
  const std::string_view tail = path.substr(path.size() - kTail.size());
  const bool is_part = std::ranges::equal(tail, kTail, [](char c, char like) {
    return like >= '0' && like <= '9' ? c >= '0' && c <= '9' : c == like;
  });
  if (!is_part) return {path};
  path.remove_suffix(kTail.size());
  return {path, tail.substr(1, 5), tail.substr(10)};
}

ModelFile model_file(std::string name, const fs::path& path) {
  std::error_code error;
  ModelFile file = {.name = std::move(name), .path = path, .bytes = fs::file_size(path, error)};
  read_times(file);
  return file;
}

std::vector<ModelFile> models_in(const fs::path& folder) {
  std::map<std::string, ModelFile> files;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    add(*entry, files);
  }
  require(!error, ErrorKind::io, printable(folder.string(), 4096), ": cannot be read (",
          error.message(), ")");
  std::vector<ModelFile> models;
  for (auto& [key, file] : files) {
    if (file.path.empty()) continue;  // the first part is missing
    if (key.ends_with(".gguf") && files.contains(file.name + ".leq")) file.name = key;
    models.push_back(file);
  }
  std::ranges::sort(models, {}, &ModelFile::name);
  return models;
}

std::string model_name_of(const std::string& path) {
  const std::string name = path.substr(path.find_last_of('/') + 1);
  for (const std::string_view ending : {".leq", ".gguf"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
}

namespace {

// A name in the form in which its spellings agree.
std::string plain(std::string_view text) {
  std::string out = ascii_lower(text);
  for (const std::string_view ending : {":latest", ".leq", ".gguf"}) {  // the first is Ollama's
    if (out.ends_with(ending)) out.resize(out.size() - ending.size());
  }
  return out;
}

}  // namespace

NameMatch match_name(std::string_view wanted, std::string_view whole, std::string_view name,
                     const fs::path& file) {
  if (wanted == name || whole == name) return NameMatch::exact;
  const std::string known = plain(name), own = plain(file.filename().string());
  NameMatch best = NameMatch::none;
  for (const std::string& word : {plain(wanted), plain(whole)}) {
    if (word.empty()) continue;
    if (word == known || word == own) return NameMatch::spelling;
    if (known.starts_with(word + ':')) best = NameMatch::untagged;
  }
  return best;
}

}  // namespace leq
