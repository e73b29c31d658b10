// Parts of a program that runs many cases: its arguments, its folder, and the cases on several
// threads with a report of those that fail.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace leq::hostile {

// Sets values from pairs of words, "--seed 7". Throws std::runtime_error for words that are not in
// the table.
using ArgumentTable = std::map<std::string, std::function<void(const std::string& value)>>;
void read_arguments(int argc, char** argv, const ArgumentTable& table);

// A temporary folder, removed at the end unless it is kept for a look at it.
class CaseFolder {
 public:
  explicit CaseFolder(const std::string& name);
  ~CaseFolder();
  CaseFolder(const CaseFolder&) = delete;
  CaseFolder& operator=(const CaseFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  std::filesystem::path path_;
  bool kept_ = false;
};

struct CaseFailure {
  std::string group;  // failures are printed by group
  std::string name, text;
  std::string said;  // by the tool
};

// Runs cases 0 to count - 1 on `jobs` threads and prints the failures; `run` returns that of a case
// that failed. An exception is a failure too. Returns the number of failures.
std::size_t run_cases(std::size_t count, unsigned jobs,
                      const std::function<std::optional<CaseFailure>(std::size_t)>& run);

// The end of a text on one line without control characters.
std::string short_text(const std::string& text);

}  // namespace leq::hostile
