// Documents and comments name source files that exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "source_files.h"

namespace leq {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

// Returns the names of source files in a text, without a leading "../".
Names names_in(std::string_view text) {
  constexpr std::string_view kOfName =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  Names names;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t first = text.find_first_of(kOfName, i);
    if (first == text.npos) break;
    i = std::min(text.find_first_not_of(kOfName, first), text.size());
    std::string_view word = text.substr(first, i - first);
    while (word.ends_with('.')) word.remove_suffix(1);
    const auto start = word.find_first_not_of("./");
    if (start == word.npos) continue;
    word.remove_prefix(start);
    for (const std::string_view end : {".h", ".cpp", ".inc", ".cu", ".cuh"}) {
      if (word.size() > end.size() && word.ends_with(end)) names.emplace_back(word);
    }
  }
  return names;
}

// Returns the comment of a line, "" if it has none. An address in a string is no comment.
std::string_view comment_of(std::string_view line) {
  for (std::size_t at = line.find("//"); at != line.npos; at = line.find("//", at + 2)) {
    if (at == 0 || line[at - 1] == ' ') return line.substr(at + 2);
  }
  return {};
}

// The paths of all source files, and the ends of these paths after a slash.
std::set<std::string> known_names() {
  std::set<std::string> known;
  for (const fs::path& file : test::source_files(
           {"src", "families", "cuda", "tools", "tests", "bench", "examples", "cmake"})) {
    const std::string path = file.generic_string();
    known.insert(path);
    for (std::size_t i = 0; i < path.size(); ++i) {
      if (path[i] == '/') known.insert(path.substr(i + 1));
    }
  }
  return known;
}

// Other programs, and places for a name in instructions.
bool is_exception(std::string_view name) {
  return name.ends_with("llama.cpp") || name.find("NAME") != name.npos;
}

// Returns the names in `text` that no source file has.
Names missing(std::string_view text, const std::set<std::string>& known) {
  Names found;
  for (const std::string& name : names_in(text)) {
    if (!known.contains(name) && !is_exception(name)) found.push_back(name);
  }
  return found;
}

std::vector<fs::path> documents() {
  const fs::path root = LEQ_SOURCE_DIR;
  std::vector<fs::path> files = {"README.md", "CONTRIBUTING.md"};
  for (const char* folder : {"docs", "bench"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() == ".md") files.push_back(fs::relative(entry.path(), root));
    }
  }
  return files;
}

TEST(FileNames, DocumentsNameFilesThatExist) {
  const auto known = known_names();
  int named = 0;
  for (const fs::path& file : documents()) {
    const std::string text = test::source_text(file);
    named += static_cast<int>(names_in(text).size());
    EXPECT_EQ(join(missing(text, known), ", "), "") << file;
  }
  EXPECT_GT(named, 100) << "the test reads no documents";
}

TEST(FileNames, CommentsNameFilesThatExist) {
  const auto known = known_names();
  int named = 0;
  for (const fs::path& file :
       test::source_files({"src", "families", "cuda", "tools", "tests", "bench"})) {
    const std::string text = test::source_text(file);
    for (const auto line : split(text, "\n")) {
      named += static_cast<int>(names_in(comment_of(line)).size());
      EXPECT_EQ(join(missing(comment_of(line), known), ", "), "") << file << ": " << line;
    }
  }
  EXPECT_GT(named, 100) << "the test reads no comments";
}

TEST(FileNames, FindsNamesOfAbsentFiles) {
  const std::set<std::string> known = {"src/a/b.h", "a/b.h", "b.h"};
  EXPECT_EQ(missing("see `b.h`, (a/b.h) or ../src/a/b.h.", known), Names{});
  EXPECT_EQ(missing("`c.h`: NAME_test.cpp, ik_llama.cpp, c/b.h", known), (Names{"c.h", "c/b.h"}));
  EXPECT_EQ(comment_of("int x;  // see there"), " see there");
  EXPECT_EQ(comment_of("f(\"http://b.h\");"), "");
}

}  // namespace
}  // namespace leq
