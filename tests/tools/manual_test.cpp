// Manual pages and completions are generated from the tables, so every option must be in them; they
// are also read by the programs for which they are made, if installed.
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "base/text.h"
#include "tools/process.h"
#include "tools/tool_runner.h"

namespace leq::test {
namespace {

constexpr const char* kTools[] = {"leq-quantize", "leq-run", "leq-perplexity", "leq-bench"};

bool is_installed(const std::string& program) {
  return run({"/bin/sh", "-c", "command -v " + program + " > /dev/null"}).status == 0;
}

std::string output_of(const std::string& tool, const std::vector<std::string>& words) {
  const ToolRun ran = run_program(tool, words);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
  return ran.out;
}

std::vector<std::string> words_of(const std::string& tool) {
  std::vector<std::string> words = words_in_help(output_of(tool, {"--help"}));
  EXPECT_GT(words.size(), 8u) << tool;
  return words;
}

TEST(Manual, HasEveryOption) {
  for (const std::string tool : kTools) {
    const std::string page = output_of(tool, {"--man"});
    EXPECT_TRUE(page.starts_with(".TH LEQ\\-")) << page.substr(0, 40);
    for (const std::string& word : words_of(tool)) {
      EXPECT_NE(page.find("\\fB" + replace_all(word, "-", "\\-") + "\\fR"), std::string::npos)
          << tool << " " << word;
    }
    EXPECT_EQ(page.find("(1),\n\n"), std::string::npos);
  }
}

TEST(Manual, NamesTheOtherToolsAndEveryStatus) {
  const std::string page = output_of("leq-run", {"--man"});
  for (const char* part :
       {"line, 2 if \\-n or \\-c cut a reply", "\\fBleq\\-server\\fR(1)", "\\fBleq\\fR(1)"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page.find(": json\n"), std::string::npos) << "the only choice is the word of the value";
  for (const char* command : {"ls", "create"}) {
    EXPECT_EQ(output_of("leq", {command, "--man"}).find(".SS \"\""), std::string::npos) << command;
  }
}

TEST(Manual, IsRenderedWithoutWarnings) {
  if (!is_installed("groff")) GTEST_SKIP() << "groff is not installed";
  const TemporaryFolder folder;
  for (const std::string tool : kTools) {
    const std::string page = folder.write(tool + ".1", output_of(tool, {"--man"}));
    const Finished rendered =
        run({"/bin/sh", "-c", "groff -man -Tutf8 -ww -P-c -P-b -P-u '" + page + "'"});
    EXPECT_EQ(rendered.status, 0);
    EXPECT_EQ(rendered.err, "") << tool;
    for (const char* part : {"NAME", "SYNOPSIS", "OPTIONS", "ENVIRONMENT", "SEE ALSO"}) {
      EXPECT_NE(rendered.out.find(part), std::string::npos) << tool << " " << part;
    }
    EXPECT_NE(rendered.out.find(tool), std::string::npos);
  }
}

// Returns what bash offers after these words, the last of which is incomplete.
std::string offered(const std::string& script, const std::string& tool,
                    const std::vector<std::string>& words, const std::string& folder = "/") {
  std::string typed;
  for (const std::string& word : words) typed += " '" + word + "'";
  const Finished shell =
      run({"/bin/bash", "--norc", "-c",
           "compopt() { :; }; source '" + script + "'; cd '" + folder + "'; COMP_WORDS=(" + tool +
               typed + "); COMP_CWORD=" + std::to_string(words.size()) + "; _" +
               replace_all(tool, "-", "_") + "; printf '%s|' \"${COMPREPLY[@]}\""});
  EXPECT_EQ(shell.status, 0) << shell.err;
  EXPECT_EQ(shell.err, "");
  return shell.out;
}

TEST(Completion, OfBashOffersOptionsChoicesAndFiles) {
  const TemporaryFolder folder;
  const std::string script = folder.write("script", output_of("leq-run", {"--completion", "bash"}));
  EXPECT_EQ(offered(script, "leq-run", {"--top"}), "--top-k|--top-p|--top-nsigma|--top-n-sigma|");
  EXPECT_EQ(offered(script, "leq-run", {"--enable-thinking", ""}), "on|off|");
  EXPECT_EQ(offered(script, "leq-run", {"--enable-thinking", "of"}), "off|");
  EXPECT_EQ(offered(script, "leq-run", {"--enable-thinking", "=", "of"}), "off|");
  EXPECT_EQ(offered(script, "leq-run", {"--enable-thinking", "="}), "on|off|");
  EXPECT_EQ(offered(script, "leq-run", {"--temp", ""}), "|");
  EXPECT_EQ(offered(script, "leq-run", {"-ctk", "f"}), "f32|f16|");
  EXPECT_EQ(offered(script, "leq-run", {"-dev", "cu"}), "cuda|cuda:0|");
  EXPECT_EQ(offered(script, "leq-run", {"--chat-template", "chat"}), "chatml|");
  const std::string quantize =
      folder.write("quantize", output_of("leq-quantize", {"--completion", "bash"}));
  EXPECT_EQ(offered(quantize, "leq-quantize", {"--type", "int4"}), "int4-g128|int4-g64|int4-g32|");
  EXPECT_EQ(offered(quantize, "leq-quantize", {"--smooth", "o"}), "o1|o2|o3|");
  const std::string models = folder / "models";
  std::filesystem::create_directory(models);
  for (const char* name : {"a model.leq", "b.leq", "c.txt"}) {
    std::ofstream(models + "/" + name) << "x";
  }
  EXPECT_EQ(offered(script, "leq-run", {"-m", "a"}, models), "a model.leq|");
  EXPECT_EQ(offered(script, "leq-run", {"-m", "b"}, models), "b.leq|");
  EXPECT_EQ(offered(script, "leq-run", {"--mo", "x"}, models), "|");
}

// `leq run --top<Tab>` offers what `leq-run --top<Tab>` does.
TEST(Completion, OfLeqOffersCommandsAndTheirOptions) {
  const TemporaryFolder folder;
  const std::string script = folder.write("script", output_of("leq", {"--completion", "bash"}));
  EXPECT_EQ(offered(script, "leq", {"s"}), "serve|show|");
  EXPECT_EQ(offered(script, "leq", {"--qu"}), "--quiet|");
  EXPECT_EQ(offered(script, "leq", {"run", "--top"}),
            "--top-k|--top-p|--top-nsigma|--top-n-sigma|");
  EXPECT_EQ(offered(script, "leq", {"run", "--enable-thinking", "of"}), "off|");
  EXPECT_EQ(offered(script, "leq", {"nothing", "--top"}), "|");
  const std::string zsh = output_of("leq", {"--completion", "zsh"});
  const std::string fish = output_of("leq", {"--completion", "fish"});
  for (const std::string command : {"run", "serve", "pull", "ls", "rm", "show", "ps", "quantize",
                                    "perplexity", "bench", "inspect"}) {
    const std::size_t in_zsh = zsh.find("\n" + command + ")");
    ASSERT_NE(in_zsh, std::string::npos) << command;
    for (const std::string& word : words_in_help(output_of("leq", {command, "--help"}))) {
      EXPECT_NE(offered(script, "leq", {command, word}).find(word + "|"), std::string::npos)
          << command << " " << word;
      EXPECT_LT(zsh.find(word + "[", in_zsh), zsh.find("\n;;\n", in_zsh)) << command << " " << word;
      const std::string bare = word.substr(word.starts_with("--") ? 2 : 1);
      EXPECT_TRUE(
          std::regex_search(fish, std::regex("from " + command + "'[^\n]* -[lso] " + bare + " ")))
          << command << " " << word;
    }
  }
}

TEST(Completion, HasEveryOptionInEveryShell) {
  for (const std::string tool : kTools) {
    const std::string bash = output_of(tool, {"--completion", "bash"});
    const std::string zsh = output_of(tool, {"--completion=zsh"});
    const std::string fish = output_of(tool, {"--completion", "fish"});
    for (const std::string& word : words_of(tool)) {
      const bool is_long = word.starts_with("--");
      const std::string bare = word.substr(is_long ? 2 : 1);
      EXPECT_NE((bash + " ").find(word), std::string::npos) << tool << " " << word;
      EXPECT_NE(zsh.find(word + "["), std::string::npos) << tool << " " << word;
      const std::string kind = is_long ? " -l " : bare.size() == 1 ? " -s " : " -o ";
      EXPECT_NE(fish.find(kind + bare + " "), std::string::npos) << tool << " " << word;
    }
  }
}

TEST(Completion, IsReadByItsShells) {
  const TemporaryFolder folder;
  int read = 0;
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    if (!is_installed(shell)) continue;
    ++read;
    for (const std::string tool : {"leq", "leq-quantize", "leq-run"}) {
      const std::string script =
          folder.write(tool + "." + shell, output_of(tool, {"--completion", shell}));
      const Finished checked = run({"/bin/sh", "-c", shell + " -n '" + script + "'"});
      EXPECT_EQ(checked.status, 0) << shell << ": " << checked.err;
      EXPECT_EQ(checked.err, "") << shell;
    }
  }
  EXPECT_GE(read, 1);
  if (read < 3) GTEST_SKIP() << "zsh or fish is not installed: their scripts were not read";
}

TEST(Completion, OfAnotherShellIsRefused) {
  const ToolRun refused = run_program("leq-run", {"--completion", "tcsh"});
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.err.find("bash | zsh | fish"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace leq::test
