// The table of modules (docs/architecture.md): a file may include its module and modules on lower
// lines; modules on one line are independent. No source file has more than 800 lines.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "source_files.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxLines = 800;

const std::map<std::string, int> kLines = {
    {"base", 0},     {"tensor", 1},  {"format", 2},    {"tokenizer", 2},   {"ranks", 2},
    {"sampling", 3}, {"grammar", 3}, {"hub", 3},       {"backend", 4},     {"cache", 5},
    {"cuda", 5},     {"model", 6},   {"chat", 7},      {"quantize", 7},    {"families", 7},
    {"engine", 8},   {"eval", 8},    {"convert", 8},   {"runtime", 9},     {"server", 10},
    {"tools", 11},   {"capi", 11},   {"examples", 11}, {"quantize/run", 9}};

// Returns the module of a path relative to the source folder; "" for files outside the modules. A
// module of two folders is within another module's folder, and not part of that module.
std::string folder_of(const fs::path& relative) {
  auto part = relative.begin();
  if (*part == "src" && ++part == relative.end()) return "";
  const std::string name = part->string();
  if (++part != relative.end() && kLines.contains(name + "/" + part->string())) {
    return name + "/" + part->string();
  }
  return kLines.contains(name) ? name : "";
}

std::vector<fs::path> source_files() {
  return test::source_files({"src", "cuda", "families", "tools", "examples", "tests", "bench"});
}

std::vector<std::string> lines_of(const fs::path& relative) {
  const std::string text = test::source_text(relative);
  std::vector<std::string> lines;
  for (const auto line : split(text, "\n")) lines.emplace_back(line);
  return lines;
}

// Returns the quoted file of an #include line; "" for other lines.
std::string included(const std::string& line) {
  const auto text = trim(line);
  if (!text.starts_with("#include \"")) return "";
  const std::size_t first = text.find('"') + 1;
  return std::string(text.substr(first, text.find('"', first) - first));
}

// Returns the rule that `file` violates by including `target`; "" if it violates none.
std::string violation(const std::string& folder, const fs::path& file, const std::string& target) {
  const std::string other = folder_of(target);
  if (other.empty() || other == folder) return "";
  if (kLines.at(other) < kLines.at(folder)) return "";
  return file.string() + " (" + folder + ", line " + std::to_string(kLines.at(folder)) +
         ") includes " + target + " (line " + std::to_string(kLines.at(other)) + ")";
}

TEST(Layering, RoomsIncludeOnlyLowerRooms) {
  int includes = 0;
  for (const fs::path& file : source_files()) {
    const std::string folder = folder_of(file);
    if (folder.empty()) continue;
    for (const std::string& line : lines_of(file)) {
      const std::string target = included(line);
      if (target.empty()) continue;
      ++includes;
      EXPECT_EQ(violation(folder, file, target), "");
    }
  }
  EXPECT_GT(includes, 100) << "the test reads no sources";
}

using Folders = std::map<std::string, std::set<std::string>>;  // folder -> the folders it includes

// Returns a cycle of includes from a folder back to itself; "" if there is none.
std::string ring(const Folders& folders) {
  std::map<std::string, bool> finished;  // false: on the current path
  std::vector<std::string> way;
  std::string found;
  const std::function<void(const std::string&)> follow = [&](const std::string& folder) {
    if (!found.empty() || (finished.contains(folder) && finished[folder])) return;
    way.push_back(folder);
    if (finished.contains(folder)) {
      way.erase(way.begin(), std::ranges::find(way, folder));
      found = join(way, " -> ");
      return;
    }
    finished[folder] = false;
    if (const auto next = folders.find(folder); next != folders.end()) {
      for (const std::string& other : next->second) follow(other);
    }
    if (!found.empty()) return;  // the cycle is complete
    finished[folder] = true;
    way.pop_back();
  };
  for (const auto& [folder, others] : folders) follow(folder);
  return found;
}

// Returns an included file relative to src/ or to the project's folder; "" for other files.
std::string resolved(const std::string& target) {
  for (const char* root : {"src/", ""}) {
    if (fs::exists(fs::path(LEQ_SOURCE_DIR) / (root + target))) return root + target;
  }
  return "";
}

TEST(Layering, FoldersDoNotIncludeEachOtherInARing) {
  Folders folders;
  for (const fs::path& file : source_files()) {
    if (folder_of(file).empty()) continue;
    for (const std::string& line : lines_of(file)) {
      const std::string target = resolved(included(line));
      if (target.empty()) continue;
      const std::string from = file.parent_path().string();
      const std::string to = fs::path(target).parent_path().string();
      if (from != to) folders[from].insert(to);
    }
  }
  EXPECT_GT(folders.size(), 30u) << "the test reads no sources";
  EXPECT_EQ(ring(folders), "");
}

TEST(Layering, FindsARingOfFolders) {
  EXPECT_EQ(ring({{"a", {"b"}}, {"b", {"c"}}, {"d", {"a"}}}), "");
  EXPECT_EQ(ring({{"a", {"b"}}, {"b", {"c", "d"}}, {"d", {"b"}}}), "b -> d -> b");
}

TEST(Layering, FindsUpwardAndSidewaysIncludes) {
  EXPECT_NE(violation("base", "src/base/x.h", "model/weights.h"), "");
  EXPECT_NE(violation("format", "src/format/x.h", "tokenizer/spec.h"), "");
  EXPECT_EQ(violation("model", "src/model/x.h", "cache/kv_cache.h"), "");
  EXPECT_EQ(violation(folder_of("src/quantize/run/x.h"), "x.h", "quantize/methods/method.h"), "");
  EXPECT_NE(violation(folder_of("src/quantize/methods/x.h"), "x.h", "quantize/run/steps.h"), "");
}

TEST(Layering, NoSourceFileIsLongerThanEightHundredLines) {
  for (const fs::path& file : source_files()) {
    EXPECT_LE(lines_of(file).size(), kMaxLines + 1) << file;
  }
}

TEST(Layering, EveryRoomOfTheSourceFolderIsInTheTable) {
  for (const auto& entry : fs::directory_iterator(fs::path(LEQ_SOURCE_DIR) / "src")) {
    EXPECT_TRUE(kLines.contains(entry.path().filename().string())) << entry.path();
  }
}

}  // namespace
}  // namespace leq
