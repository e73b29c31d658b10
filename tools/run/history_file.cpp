#include "tools/run/history_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <span>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"

namespace leq::run {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxHistoryBytes = 16 << 20;

fs::path variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string line_of(const std::string& text) { return Json(text).dump_any() + '\n'; }

// The end of the file from the start of a line.
std::string last_bytes(const fs::path& path, std::uint64_t size) {
  const std::uint64_t skipped = size - std::min(size, kMaxHistoryBytes);
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(skipped));
  std::string text(size - skipped, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (skipped > 0) text.erase(0, text.find('\n'));
  return text;
}

std::vector<std::string> read_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string_view line : split(text, "\n")) {
    if (line.empty()) continue;
    try {
      lines.push_back(parse_json(line, "history").text());
    } catch (const Error&) {  // from a truncated line
    }
  }
  return lines;
}

void rewrite(const fs::path& path, std::span<const std::string> lines) {
  AtomicFile file(path);
  for (const std::string& line : lines) {
    const std::string text = line_of(line);
    file.append(std::as_bytes(std::span(text)));
  }
  file.commit();
  ::chmod(path.c_str(), S_IRUSR | S_IWUSR);
}

}  // namespace

fs::path state_folder() {
  if (const fs::path state = variable("XDG_STATE_HOME"); state.is_absolute()) return state / "leq";
  const fs::path home = variable("HOME");
  return home.is_absolute() ? home / ".local" / "state" / "leq" : fs::path();
}

fs::path history_path() {
  if (std::getenv("LEQ_HISTORY") != nullptr) return variable("LEQ_HISTORY");
  const fs::path folder = state_folder();
  return folder.empty() ? folder : folder / "history";
}

bool is_chat_name(std::string_view name) {
  constexpr std::size_t kMaxName = 64;
  return !name.empty() && name.size() <= kMaxName && name.front() != '-' &&
         std::ranges::all_of(name, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_';
         });
}

fs::path named_chat_folder() { return state_folder() / "chats"; }

fs::path named_chat_path(std::string_view name) {
  require(is_chat_name(name), "'", printable(name),
          "' is not a chat's name: expected letters, digits, - and _");
  require(!state_folder().empty(), "there is no folder for chats: set HOME or XDG_STATE_HOME");
  return named_chat_folder() / (std::string(name) + ".json");
}

std::vector<std::string> saved_chat_names() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(named_chat_folder(), error)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".json" && is_chat_name(name)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> read_history(const fs::path& path) {
  try {
    std::error_code error;
    if (path.empty() || !fs::is_regular_file(path, error)) return {};
    const std::uint64_t size = fs::file_size(path);
    const std::vector<std::string> lines = read_lines(last_bytes(path, size));
    const auto last = std::span(lines).last(std::min(lines.size(), kHistoryLines));
    if (lines.size() > 2 * kHistoryLines || size > kMaxHistoryBytes) rewrite(path, last);
    return {last.begin(), last.end()};
  } catch (const std::exception&) {
    return {};
  }
}

void append_history(const fs::path& path, const std::string& text) {
  if (path.empty() || first_invalid_utf8(text)) return;
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK,
                          S_IRUSR | S_IWUSR);
  if (file < 0) return;
  struct stat status = {};
  const std::string line = line_of(text);
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
      ::write(file, line.data(), line.size()) < 0) {
    ::close(file);
    return;
  }
  ::close(file);
}

}  // namespace leq::run
