#include "tools/run/history_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
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

std::string line_of(const std::string& text) { return Json(text).dump_any() + '\n'; }

std::vector<std::string> read_lines(const fs::path& path) {
  std::vector<std::string> lines;
  const std::string text = read_text_file(path, kMaxHistoryBytes);
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

fs::path history_path() {
  const auto folder = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value == nullptr ? "" : value);
  };
  if (std::getenv("LEQ_HISTORY") != nullptr) return folder("LEQ_HISTORY");
  if (const fs::path state = folder("XDG_STATE_HOME"); state.is_absolute()) {
    return state / "leq" / "history";
  }
  const fs::path home = folder("HOME");
  return home.is_absolute() ? home / ".local" / "state" / "leq" / "history" : fs::path();
}

std::vector<std::string> read_history(const fs::path& path) {
  try {
    std::error_code error;
    if (path.empty() || !fs::is_regular_file(path, error)) return {};
    std::vector<std::string> lines = read_lines(path);
    if (lines.size() <= kHistoryLines) return lines;
    const auto last = std::span(lines).last(kHistoryLines);
    if (lines.size() > 2 * kHistoryLines) rewrite(path, last);
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
