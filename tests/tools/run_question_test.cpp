// leq-run as a new user types it: a question without a flag, a missing model, an empty reply, a
// typo in a command, and earlier input recalled from the history.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "models_fixture.h"
#include "tools/process.h"
#include "tools/tool_runner.h"

namespace leq {
namespace {

namespace fs = std::filesystem;
using test::Process;
using test::run_program;
using test::ToolRun;
using Words = std::vector<std::string>;

// Returns the storyteller, which has a chat template.
std::string story() {
  return test::quantized(std::string(LEQ_SOURCE_DIR) + "/examples/storyteller", "int8");
}

ToolRun tell(Words words, const std::string& input = "") {
  words.insert(words.begin(), {"-m", story(), "--temp", "0", "-t", "1", "-n", "12"});
  return run_program("leq-run", words, input);
}

TEST(RunQuestion, AWordWithoutAFlagIsAskedInAChat) {
  const ToolRun asked = tell({"Who is there?"});
  EXPECT_EQ(asked.status, 0) << asked.err;
  EXPECT_EQ(asked.out, tell({"-st", "-p", "Who is there?"}).out);
  EXPECT_NE(asked.out, tell({"--raw", "-p", "Who is there?", "--no-display-prompt"}).out);
  // Flags that choose a mode still apply to a question without a flag.
  EXPECT_EQ(tell({"Who is there?", "-no-cnv"}).out, tell({"--raw", "-p", "Who is there?"}).out);
  EXPECT_EQ(tell({"--", "-p"}).status, 0);
}

// As in llama-cli and ollama: a model with a chat template answers, wherever the text comes from.
TEST(RunQuestion, TextsOfFlagsFilesAndPipesAreAskedToo) {
  const test::TemporaryFolder folder;
  const std::string file = folder.write("question.txt", "Who is there?\n");
  const std::string asked = tell({"Who is there?"}).out;
  EXPECT_EQ(tell({"-p", "Who is there?"}).out, asked);
  EXPECT_EQ(tell({"-f", file}).out, asked);
  EXPECT_EQ(tell({}, "Who is there?\n").out, asked);
  EXPECT_EQ(tell({"--chat-template", "llama2", "-p", "Who is there?"}).status, 0);
  // With -cnv the lines of a pipe are messages, after the first one.
  EXPECT_EQ(tell({"-cnv", "-p", "Who is there?"}, "").out, asked);
  EXPECT_TRUE(tell({"-cnv", "-p", "Who is there?"}, "And?\n").out.starts_with(asked));
  EXPECT_GT(tell({"-cnv", "-p", "Who is there?"}, "And?\n").out.size(), asked.size());
}

// A question in a terminal or a script: its answer, and nothing beside it.
TEST(RunQuestion, PrintsItsAnswerAlone) {
  for (const Words& words : {Words{"Who is there?"}, Words{"-p", "Who is there?", "-st"},
                             Words{"-sys", "Be brief.", "Who is there?"}}) {
    const ToolRun asked = tell(words);
    EXPECT_EQ(asked.status, 0);
    EXPECT_EQ(asked.err, "");
    EXPECT_FALSE(asked.out.empty());
    Words verbose = words;
    verbose.emplace_back("-v");
    const ToolRun told = tell(verbose);
    EXPECT_EQ(told.out, asked.out);
    for (const char* part : {"M parameters", "settings: temp 0", "tokens/s"}) {
      EXPECT_NE(told.err.find(part), std::string::npos) << part << told.err;
    }
  }
  Process terminal({std::string(LEQ_TOOLS_DIR) + "/leq-run", story(), "Who is there?", "--temp",
                    "0", "-n", "12"},
                   Process::Input::terminal, {"TERM=xterm"});
  EXPECT_EQ(terminal.finish(), 0);
  EXPECT_EQ(terminal.err, "");
  EXPECT_EQ(terminal.out, tell({"Who is there?"}).out);
}

TEST(RunQuestion, AReplyOfJsonIsAskedForAsInOllama) {
  const ToolRun json = tell({"--format", "json", "-n", "40", "Who is there?"});
  EXPECT_EQ(json.out, tell({"-j", "{\"type\": \"object\"}", "-n", "40", "Who is there?"}).out);
  EXPECT_TRUE(json.out.starts_with('{')) << json.out;
  EXPECT_NE(tell({"--keepalive", "5m", "Who is there?"}).err.find("--keepalive: "),
            std::string::npos);
  test::expect_tool_error(tell({"--format", "xml", "x"}), {"--format", "json"});
}

TEST(RunQuestion, QuietLeavesTheReplyAlone) {
  const ToolRun quiet = tell({"--quiet", "Who is there?"});
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(quiet.out, tell({"Who is there?"}).out);
  EXPECT_NE(tell({"--quiet", "-cnv"}, "/show\n").err, "") << "what is asked for in a chat";
  test::expect_tool_error(tell({"--log-disable", "-p", "x", "-c", "100000"}), {"-c"});
}

TEST(RunQuestion, CtrlCEndsItWithItsStatus) {
  for (const Words& words : {Words{"Who is there?"}, Words{"-st", "-p", "Who is there?"}}) {
    std::vector<std::string> command = {std::string(LEQ_TOOLS_DIR) + "/leq-run", "-m", story()};
    command.insert(command.end(), {"--temp", "0", "-t", "1", "-n", "900", "--ignore-eos"});
    command.insert(command.end(), words.begin(), words.end());
    Process process(command, Process::Input::pipe);
    process.close_input();
    ASSERT_TRUE(process.wait_for_output(" ")) << process.err;
    process.signal(SIGINT);
    EXPECT_EQ(process.finish(), 130);
    EXPECT_NE(process.err.find("leq-run: interrupted"), std::string::npos) << process.err;
  }
}

// The advice is that of a question, and of a model that can have a larger context.
TEST(RunQuestion, AFullContextIsTold) {
  const std::string full = tell({"-n", "-1", "--ignore-eos", "-c", "40", "hi"}).err;
  EXPECT_NE(full.find("context of 40 positions is full; a larger -c holds more\n"),
            std::string::npos)
      << full;
  EXPECT_NE(tell({"-n", "-1", "--ignore-eos", "hi"}).err.find(" positions is full\n"),
            std::string::npos);
  std::string text;
  for (int i = 0; i < 1100; ++i) text += "fox ";
  const std::string advice = ", and this model has no longer one: ";
  for (const Words& words : {Words{"-p", text}, Words{"--raw", "-p", text}}) {
    test::expect_tool_error(tell(words), {"leaves no room", advice});
    Words small = words;
    small.insert(small.end(), {"-c", "64"});
    test::expect_tool_error(tell(small), {"leaves no room", " a larger -c"});
  }
}

// Without -sys no message names it.
TEST(RunQuestion, TheSystemPromptOfACreatedNameIsNotOfCompletions) {
  const test::TemporaryFolder folder;
  folder.write("brief.modelfile",
               "FROM " + story() + "\nSYSTEM Be brief.\nPARAMETER temperature 0\n");
  const std::string prompts = folder.write("prompts.txt", "Once\nThe king\n");
  const auto run = [&](Words words) {
    words.insert(words.begin(), {std::string(LEQ_TOOLS_DIR) + "/leq-run", "brief", "-n", "4"});
    return test::run(words, "", {"LEQ_MODELS=" + folder.path().string()});
  };
  const std::string told = "leq-run: brief: without its system prompt";
  for (const Words& words : {Words{"--raw", "-p", "Once"}, Words{"-np", "2", "-f", prompts},
                             Words{"--receipt", folder / "receipt", "-p", "Once"},
                             Words{"--prompt-cache", folder / "cache", "-p", "Once"}}) {
    const ToolRun completed = run(words);
    EXPECT_EQ(completed.status, 0) << completed.err;
    EXPECT_NE(completed.err.find(told), std::string::npos) << completed.err;
  }
  EXPECT_EQ(run({"-p", "Once"}).err, "");
  test::expect_tool_error(run({"--raw", "-sys", "x", "-p", "Once"}), {"-sys", "contradict"});
}

TEST(RunQuestion, SettingsOfAChatAreNamedAsInAModelfile) {
  const std::string shown = tell({"-cnv"}, "/set mirostat_ent 3\n/show modelfile\n").err;
  EXPECT_NE(shown.find("PARAMETER mirostat_tau 3\n"), std::string::npos) << shown;
  EXPECT_EQ(shown.find("PARAMETER seed"), std::string::npos) << "the user chose none: " << shown;
  const std::string seeded = tell({"-cnv"}, "/set seed 7\n/show modelfile\n").err;
  EXPECT_NE(seeded.find("PARAMETER seed 7\n"), std::string::npos) << seeded;
  const ToolRun given = tell({"-cnv", "--temp", "1", "--seed", "7"}, "/show modelfile\n");
  EXPECT_NE(given.err.find("PARAMETER seed 7\n"), std::string::npos) << given.err;
  EXPECT_NE(given.err.find("seed 7 (flag)\n"), std::string::npos) << given.err;
  const ToolRun large = tell({"-cnv"}, "/set parameter num_ctx 100000\n");
  EXPECT_EQ(large.status, 1);
  EXPECT_NE(large.err.find("num_ctx: expected a number of tokens, at most the model's 1024"),
            std::string::npos)
      << large.err;
}

// The storyteller's tokens begin with a space, which its template does not have.
TEST(RunQuestion, AReplyBeginsWithItsFirstWord) {
  const ToolRun asked = tell({"Who is there?"});
  ASSERT_FALSE(asked.out.empty());
  EXPECT_GT(asked.out.front(), ' ');
  EXPECT_EQ(tell({"--raw", "-p", "Who is there?", "--no-display-prompt"}).out.front(), ' ');
}

TEST(RunQuestion, TakesWordsOfOtherPrograms) {
  const ToolRun plain = tell({"Who is there?", "-c", "512", "-n", "9", "-ctk", "int8"});
  const ToolRun other =
      tell({"Who is there?", "--num-ctx", "512", "--num-predict", "9", "-ctk", "q8_0"});
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_EQ(other.out, plain.out);
  EXPECT_NE(other.err.find("-ctk q8_0: taken as int8"), std::string::npos) << other.err;
}

TEST(RunQuestion, SeveralWordsWantQuotationMarks) {
  const ToolRun run = tell({"Who", "is", "there?"});
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("found 3 words without a flag ('Who', 'is' ...)"), std::string::npos)
      << run.err;
  EXPECT_NE(tell({"-p", "a", "b"}).err.find("'b' is a prompt beside that of -p"),
            std::string::npos);
}

TEST(RunQuestion, AModelThatIsNotThereIsToldBeforeAnEmptyPrompt) {
  const ToolRun run = run_program("leq-run", {"-m", "nope.leq"}, "");
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("nope.leq: no such file"), std::string::npos) << run.err;
}

// Token 2 ends a text; the bias makes it the first token.
TEST(RunQuestion, AnEmptyCompletionOfAChatModelSaysWhy) {
  const ToolRun run = tell({"--raw", "-p", "Who is there?", "-l", "2+1000"});
  EXPECT_EQ(run.status, 0);
  EXPECT_NE(run.err.find("it is made for chats"), std::string::npos) << run.err;
  EXPECT_EQ(tell({"--raw", "-p", "Who is there?"}).err.find("made for chats"), std::string::npos);
}

TEST(RunQuestion, ACommandWithASlipIsGuessed) {
  const ToolRun run = tell({"-cnv"}, "/rest\n");
  EXPECT_EQ(run.status, 1);
  EXPECT_NE(run.err.find("unknown command /rest: did you mean /reset? /help lists them"),
            std::string::npos)
      << run.err;
  EXPECT_EQ(tell({"-cnv"}, "/something\n").err.find("did you mean"), std::string::npos);
}

class RunHistory : public testing::Test {
 protected:
  Process chat(const std::string& history) const {
    return Process({std::string(LEQ_TOOLS_DIR) + "/leq-run", "-m", story(), "-n", "2", "-t", "1"},
                   Process::Input::terminal, {"TERM=xterm", "LEQ_HISTORY=" + history});
  }
  // Presses arrow up `ups` times; returns the message that is then sent.
  std::string recalled(const std::string& history, int ups) const {
    const std::string saved = (folder_ / "saved.json").string();
    Process process = chat(history);
    EXPECT_TRUE(process.wait_for_error("> ")) << process.err;
    for (int i = 0; i < ups; ++i) process.write("\033[A");
    process.write("\r");
    EXPECT_TRUE(process.wait_for_output("\n")) << process.err;
    process.write("/save " + saved + "\r/exit\r");
    EXPECT_EQ(process.finish(), 0);
    return parse_json(read_file(saved, kMaxJsonBytes), saved)["messages"][0]["content"].text();
  }
  void type(const std::string& history, const std::string& message) const {
    Process process = chat(history);
    EXPECT_TRUE(process.wait_for_error("> ")) << process.err;
    process.write(message + "\r");
    EXPECT_TRUE(process.wait_for_output("\n")) << process.err;
    process.write("/exit\r");
    EXPECT_EQ(process.finish(), 0);
  }
  test::TemporaryFolder folder_;
};

TEST_F(RunHistory, IsKeptFromOneChatToTheNext) {
  const std::string history = (folder_ / "state/history").string();
  type(history, "Hello \xc3\xa9 you.");
  EXPECT_EQ(recalled(history, 2), "Hello \xc3\xa9 you.");  // after /exit
  EXPECT_EQ(fs::status(history).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(RunHistory, IsCutWhereItIsLongAndSurvivesDamage) {
  std::string lines = "\"cut of\nnot json\n";
  for (int i = 0; i < 2500; ++i) lines += "\"line " + std::to_string(i) + "\"\n";
  const std::string history = folder_.write("history", lines);
  EXPECT_EQ(recalled(history, 1), "line 2499");
  const std::string left = test::read_bytes(history);
  EXPECT_EQ(std::ranges::count(left, '\n'), 1000 + 3);  // plus the message, /save and /exit
  EXPECT_TRUE(left.starts_with("\"line 1500\"\n"));
}

TEST_F(RunHistory, KeepsItsLastLinesWhereItIsTooLarge) {
  std::string lines;
  for (int i = 0; i < 20; ++i) {
    lines += '"' + std::to_string(i) + std::string(1 << 20, 'x') + "\"\n";
  }
  const std::string history = folder_.write("history", lines + "\"last\"\n");
  EXPECT_EQ(recalled(history, 1), "last");
  EXPECT_LT(fs::file_size(history), 16u << 20);
}

TEST_F(RunHistory, IsKeptNowhereWhereItIsSwitchedOff) {
  type("", "Hello.");
  EXPECT_TRUE(folder_.names().empty());
}

}  // namespace
}  // namespace leq
