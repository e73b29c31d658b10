// Tests what all tools have in common: help, version, and one-line errors with exit status 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>
#include <string>

#include "base/version.h"
#include "tools/process.h"
#include "tools/small_models.h"
#include "tools/tool_runner.h"

namespace leq::test {
namespace {

constexpr const char* kTools[] = {"leq-quantize", "leq-run",   "leq-perplexity",
                                  "leq-inspect",  "leq-bench", "leq-server"};

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

// Options of memory and speed are listed last, after those that every user needs.
TEST(EveryTool, ListsModelPromptAndGenerationFirst) {
  const std::string help = run_program("leq-run", {"--help"}).out;
  std::size_t last = 0;
  for (const char* word : {"-m, --model", "-p, --prompt", "-n, --n-predict", "-s, --seed", "--tp",
                           "--numa", "--kv-sink", "--version"}) {
    const std::size_t at = help.find(word);
    ASSERT_NE(at, std::string::npos) << word;
    EXPECT_GT(at, last) << word;
    last = at;
  }
  EXPECT_NE(help.find("or 0.8)"), std::string::npos) << "the default temperature";
  const std::string quantize = run_program("leq-quantize", {"--help"}).out;
  EXPECT_LT(quantize.find("Which type?"), quantize.find("--recipe NAME"));
  EXPECT_LT(quantize.find("--recipe NAME"), quantize.find("--type TYPE"));
}

// A terminal has 80 columns, which a longer line of a table would break.
TEST(EveryTool, HelpsWithin80Columns) {
  std::vector<std::vector<std::string>> commands = {{"--help"}};
  for (const char* command : {"run", "serve", "pull", "ls", "rm", "show", "create", "cp", "ps",
                              "quantize", "perplexity", "bench", "inspect"}) {
    commands.push_back({command, "--help"});
  }
  for (const std::vector<std::string>& words : commands) {
    const std::string help = run_program("leq", words).out;
    EXPECT_GT(help.size(), 500u) << words.front();
    for (const auto line : split(help, "\n")) EXPECT_LE(line.size(), 80u) << line;
  }
}

// Commands as users of other programs type them.
TEST(Leq, TakesWordsOfOtherPrograms) {
  const TemporaryFolder folder;
  ::setenv("LEQ_MODELS", folder.path().c_str(), 1);
  ::setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  const auto leq = [](const std::vector<std::string>& words) { return run_program("leq", words); };
  EXPECT_EQ(leq({"help", "run"}).out, leq({"run", "--help"}).out);
  EXPECT_EQ(leq({"help", "list"}).out, leq({"ls", "--help"}).out);
  EXPECT_EQ(leq({"help"}).out, leq({}).out);
  EXPECT_EQ(leq({"help", "run2"}).err, leq({"run2"}).err);
  EXPECT_EQ(leq({"list"}).err, leq({"ls"}).err);
  EXPECT_EQ(leq({"list"}).status, 0);
  EXPECT_EQ(leq({"delete", "nothing"}).err, leq({"rm", "-f", "nothing"}).err);
  const std::string file = folder.write("x.gguf", "x");
  for (const auto& [words, advice] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"stop"}, "Ctrl-C ends `leq serve`"},
           {{"stop", "x"}, "Ctrl-C ends `leq serve`"},
           {{"lst"}, "did you mean list?"},
           {{file}, "`leq run " + file + "`"},
           {{"Qwen/Qwen3-0.6B", "hello"}, "`leq run Qwen/Qwen3-0.6B`"},
           {{"qwen3"}, "`leq run qwen3`"},
           {{"-m", file}, "leq run -m FILE"},
           {{"show", "--license", "x"},
            "leq show: error: --license: a model's file has no licence"},
           {{"pull", "--insecure", "x"}, "leq pull: error: --insecure: certificates are always"},
           {{"create", "x", "--imatrix", "y"}, "leq create: error: --imatrix: importance matrices"},
           {{"ps", "--host", "https://127.0.0.1", "--port", "1"}, "error: https://127.0.0.1:1: "},
           {{"show", "nothing"}, "leq show: error: "}}) {
    const ToolRun run = leq(words);
    EXPECT_EQ(run.status, 1) << words.front();
    EXPECT_NE(run.err.find(advice), std::string::npos) << run.err;
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
  }
  ::unsetenv("LEQ_MODELS");
  ::unsetenv("XDG_CACHE_HOME");
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
    expect_tool_error(run_program(tool, {"--no-such-option"}),
                      {tool + ": error: ", "--no-such-option"});
  }
  expect_tool_error(run_program("leq-bench", {"--thread", "2"}),
                    {"leq-bench: error: ", "--threads"});
}

TEST(EveryTool, SaysWhatIsMissing) {
  for (const char* tool : {"leq-bench", "leq-inspect", "leq-perplexity", "leq-run"}) {
    expect_tool_error(run_program(tool, {}), {tool, ": error: no model: ", "`leq ls`"});
  }
  expect_tool_error(run_program("leq-perplexity", {"x.leq"}), {"no text", "-f wiki.test.raw"});
  expect_tool_error(run_program("leq-quantize", {"-o", "x.leq"}),
                    {"leq-quantize: error: ", "HF_DIR"});
}

TEST(EveryTool, NamesAFileThatIsNotThere) {
  for (const std::string tool : {"leq-inspect", "leq-bench"}) {
    std::vector<std::string> words = {"/no/such/model.leq"};
    if (tool == "leq-bench") words.insert(words.begin(), "-m");
    expect_tool_error(run_program(tool, words), {tool + ": error: ", "/no/such/model.leq"});
  }
}

// Returns the long names of a tool's options as environment variables: {"CTX_SIZE", ...}.
std::set<std::string> variables_of(const std::string& tool) {
  std::set<std::string> names;
  for (std::string word : words_in_help(run_program(tool, {"--help"}).out)) {
    if (!word.starts_with("--")) continue;
    for (char& c : word) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    names.insert(word.substr(2));
  }
  return names;
}

// A variable of one tool must not be reported by another tool; one of none is.
TEST(EveryTool, IsSilentAboutVariablesOfTheOthers) {
  std::set<std::string> all;
  for (const std::string tool : kTools) all.merge(variables_of(tool));
  EXPECT_GT(all.size(), 80u);
  for (const std::string tool : kTools) {
    const std::set<std::string> own = variables_of(tool);
    std::vector<std::string> environment = {"LEQ_ARG_VERBSOE=1"};
    for (const std::string& name : all) {
      if (!own.contains(name)) environment.push_back("LEQ_ARG_" + name + "=1");
    }
    std::vector<std::string> words = {std::string(LEQ_TOOLS_DIR) + "/" + tool};
    const bool writes = tool == "leq-quantize";
    if (tool != "leq-inspect" && !writes) words.emplace_back("-m");
    words.emplace_back("/no/such");
    if (writes) words.insert(words.end(), {"-o", "/no/such.leq"});
    if (tool == "leq-perplexity") words.insert(words.end(), {"-f", "/no"});
    const Finished finished = run(words, "x", environment);
    const bool verbose = own.contains("VERBOSE");
    EXPECT_EQ(std::ranges::count(finished.err, '\n'), 2) << finished.err;
    EXPECT_NE(finished.err.find("LEQ_ARG_VERBSOE is no variable of " + tool), std::string::npos);
    EXPECT_EQ(finished.err.find("did you mean LEQ_ARG_VERBOSE?") != std::string::npos, verbose)
        << finished.err;
  }
}

// The file that is written must not take the number of the closed stream.
TEST(EveryTool, WritesNoMessagesIntoItsOutputWhereAStreamIsClosed) {
  const TemporaryFolder folder;
  const std::string model = make_small_model(folder, "llama", "int8");
  const std::string text = folder.write("text.txt", std::string(20'000, 'e'));
  std::vector<std::string> written;
  for (const std::string closed : {"", " 2>&-", " <&- 2>&-"}) {
    const std::string base = folder / "base.kl";
    const Finished run =
        test::run({"/bin/sh", "-c",
                   "LEQ_ARG_VERBSOE=1 " + std::string(LEQ_TOOLS_DIR) + "/leq-perplexity -t 1 -m " +
                       model + " --join none -c 16 --chunks 1 -f " + text +
                       " --kl-divergence-base " + base + closed});
    EXPECT_EQ(run.status, 0) << run.err;
    written.push_back(read_bytes(base));
    EXPECT_EQ(written.back(), written.front()) << closed;
  }
  const Finished run =
      test::run({"/bin/sh", "-c", std::string(LEQ_TOOLS_DIR) + "/leq-inspect " + model + " >&-"});
  expect_tool_error(run, {"stdout: cannot write"});
}

// A tool's output is its result, so the run fails if it cannot be written.
TEST(EveryTool, AFullDiskUnderTheOutputIsAnError) {
  const TemporaryFolder folder;
  const std::string model = make_small_model(folder, "llama", "int8");
  const std::string text = folder.write("text.txt", std::string(20'000, 'e'));
  std::vector<std::pair<std::string, std::string>> runs = {
      {"leq-inspect", model},
      {"leq-inspect", model + " --json"},
      {"leq-inspect", model + " --verify"},
      {"leq-inspect", model + " --tokenize " + text},
      {"leq-perplexity", "-t 1 -m " + model + " --join none -c 16 --chunks 1 -f " + text},
      {"leq-bench", "-t 1 -p 4 -n 2 -r 1 -m " + model},
      {"leq-bench", "-t 1 -p 4 -n 2 -r 1 -o json -m " + model}};
  for (const char* tool : kTools) {
    for (const char* words : {"--help", "--version", "--man", "--completion bash"}) {
      runs.emplace_back(tool, words);
    }
  }
  for (const auto& [tool, words] : runs) {
    const std::string command = LEQ_TOOLS_DIR "/" + tool + " " + words;
    const Finished full = run({"/bin/sh", "-c", command + " > /dev/full"});
    EXPECT_EQ(full.status, 1) << command;
    EXPECT_NE(full.err.find(tool + ": error: stdout: "), std::string::npos) << command << full.err;
    EXPECT_EQ(full.err.find(": error: "), full.err.rfind(": error: ")) << full.err;
  }
}

}  // namespace
}  // namespace leq::test
