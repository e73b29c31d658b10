// What all tools have in common: help, version, and errors in one line with exit status 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/version.h"
#include "tools/tool_runner.h"

namespace leq::test {
namespace {

constexpr const char* kTools[] = {"leq-quantize", "leq-run", "leq-perplexity", "leq-inspect",
                                  "leq-bench"};

void expect_one_line_error(const ToolRun& run, const std::string& tool, const std::string& part) {
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.starts_with(tool + ": error: ")) << run.err;
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_NE(run.err.find(part), std::string::npos) << run.err;
}

TEST(EveryTool, AnswersHelp) {
  for (const std::string tool : kTools) {
    for (const char* word : {"--help", "-h"}) {
      const ToolRun run = run_program(tool, {word});
      EXPECT_EQ(run.status, 0) << tool;
      EXPECT_NE(run.out.find("Usage:"), std::string::npos) << tool;
      EXPECT_NE(run.out.find(tool + " "), std::string::npos) << tool;
      EXPECT_EQ(run.err, "") << tool;
    }
  }
}

TEST(EveryTool, AnswersVersion) {
  for (const std::string tool : kTools) {
    const ToolRun run = run_program(tool, {"--version"});
    EXPECT_EQ(run.status, 0);
    EXPECT_EQ(run.out, tool + " " + kVersion + "\n");
  }
}

TEST(EveryTool, RefusesAnOptionThatItDoesNotHave) {
  for (const std::string tool : kTools) {
    expect_one_line_error(run_program(tool, {"--no-such-option"}), tool, "--no-such-option");
  }
  expect_one_line_error(run_program("leq-bench", {"--thread", "2"}), "leq-bench", "--threads");
}

TEST(EveryTool, SaysWhatIsMissing) {
  expect_one_line_error(run_program("leq-bench", {}), "leq-bench", "-m");
  expect_one_line_error(run_program("leq-inspect", {}), "leq-inspect", "path");
  expect_one_line_error(run_program("leq-quantize", {"-o", "x.leq"}), "leq-quantize", "HF_DIR");
}

TEST(EveryTool, NamesAFileThatIsNotThere) {
  for (const std::string tool : {"leq-inspect", "leq-bench"}) {
    std::vector<std::string> words = {"/no/such/model.leq"};
    if (tool == "leq-bench") words.insert(words.begin(), "-m");
    expect_one_line_error(run_program(tool, words), tool, "/no/such/model.leq");
  }
}

}  // namespace
}  // namespace leq::test
