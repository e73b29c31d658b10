// Tests leq-run as users see it: output streams, exit statuses, prompts from all sources, Ctrl-C,
// and a chat over a pipe and on a terminal.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "models_fixture.h"
#include "shared_data.h"
#include "tools/process.h"
#include "tools/tool_runner.h"

namespace leq {
namespace {

namespace fs = std::filesystem;
using test::Finished;
using test::Process;

const std::string kTool = LEQ_TOOLS_DIR "/leq-run";

// Provides the small models, and a folder for the files of a test.
class Run : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("leq_run_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string model(const std::string& name, const std::string& type = "int8") const {
    return test::quantized(test::shared_path("models/" + name).value(), type);
  }
  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  // Returns a greedy leq-run command on the storyteller.
  std::vector<std::string> story(std::vector<std::string> words) const {
    std::vector<std::string> command = {kTool, "-m", model("storyteller"), "--temp", "0",
                                        "-t",  "1"};
    command.insert(command.end(), words.begin(), words.end());
    return command;
  }
  // With f32 weights and no end, the command runs for seconds, so that a signal arrives in time.
  std::vector<std::string> long_story() const {
    return {kTool, "-m", model("storyteller", "f32"), "--temp", "0", "-t", "1", "--ignore-eos"};
  }
  Finished tell(std::vector<std::string> words, const std::string& input = "",
                const std::vector<std::string>& environment = {}) const {
    return test::run(story(std::move(words)), input, environment);
  }
  // Expects an error: status 1, no standard output, and one line that contains `part`.
  static void expect_error(const Finished& finished, const std::string& part) {
    EXPECT_EQ(finished.out, "");
    test::expect_tool_error(finished, {part});
  }

  fs::path folder_;
};

// Returns the first message of a saved chat.
std::string saved_message(const std::string& path) {
  return parse_json(read_file(path, kMaxJsonBytes), path)["messages"][0]["content"].text();
}

TEST_F(Run, StandardOutputHoldsTheTextAlone) {
  const auto path = test::shared_path("models/storyteller").value() / "golden.json";
  const Json golden = parse_json(read_file(path, kMaxJsonBytes), "golden.json");
  const Json& prompt = golden["prompts"][1];
  const auto text = prompt["text"].get<std::string>();
  const Finished whole = test::run({kTool, "-m", model("storyteller", "f32"), "--raw", "-p", text,
                                    "-n", "96", "--temp", "0", "--ignore-eos"});
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(whole.out, text + " " + prompt["greedy_text"].get<std::string>());
  EXPECT_NE(whole.err.find("tokens/s"), std::string::npos) << whole.err;
  EXPECT_NE(whole.err.find("temp 0"), std::string::npos) << whole.err;
}

TEST_F(Run, ThePromptCanBeLeftOut) {
  const Finished with = tell({"--raw", "-p", "Once upon a time", "-n", "12"});
  const Finished without =
      tell({"--raw", "-p", "Once upon a time", "-n", "12", "--no-display-prompt"});
  EXPECT_EQ(with.out, "Once upon a time" + without.out);
  EXPECT_FALSE(without.out.empty());
}

TEST_F(Run, PromptsComeFromFlagsFilesAndPipes) {
  const std::string prompt = "Once upon a time,\nthere was";
  const std::string expected =
      tell({"--raw", "-p", "Once upon a time,\\nthere was", "-n", "12"}).out;
  EXPECT_TRUE(expected.starts_with(prompt)) << expected;
  EXPECT_EQ(tell({"--raw", "-n", "12"}, prompt).out, expected);
  EXPECT_EQ(tell({"--raw", "-n", "12"}, prompt + "\n").out, expected);
  EXPECT_EQ(tell({"--raw", "-n", "12", "-f", "-"}, prompt + "\n").out, expected);
  EXPECT_EQ(tell({"--raw", "-n", "12", "-f", file("prompt.txt", prompt + "\n")}).out, expected);
  EXPECT_EQ(tell({"--raw", "-n", "12", "-f", file("prompt.txt", prompt)}).out, expected);
  EXPECT_EQ(tell({"-n", "12"}, "", {"LEQ_ARG_RAW=1", "LEQ_ARG_PROMPT=" + prompt}).out, expected);
}

TEST_F(Run, EscapesAreReadUnlessToldNotTo) {
  EXPECT_TRUE(tell({"--raw", "-p", "a\\tb\\x41", "-n", "1"}).out.starts_with("a\tbA"));
  EXPECT_TRUE(tell({"--raw", "-p", "a\\tb", "-n", "1", "--no-escape"}).out.starts_with("a\\tb"));
}

TEST_F(Run, FlagsWinOverVariablesWhichWinOverTheModel) {
  const std::vector<std::string> words = {"-m", model("storyteller"), "--raw", "-p", "Once", "-n",
                                          "1"};
  std::vector<std::string> command = {kTool};
  command.insert(command.end(), words.begin(), words.end());
  EXPECT_NE(test::run(command).err.find("temp 0.7 (model)"), std::string::npos);
  const std::vector<std::string> environment = {"LEQ_ARG_TEMP=0.25"};
  EXPECT_NE(test::run(command, "", environment).err.find("temp 0.25 (environment)"),
            std::string::npos);
  command.insert(command.end(), {"--temp", "0.5"});
  EXPECT_NE(test::run(command, "", environment).err.find("temp 0.5 (flag)"), std::string::npos);
}

TEST_F(Run, SamplersAreReachableByTheirFlags) {
  const auto story_of = [&](std::vector<std::string> words) {
    std::vector<std::string> command = {
        kTool, "-m", model("storyteller"), "--raw", "-p", "Once upon", "-n", "60", "-s", "7"};
    command.insert(command.end(), words.begin(), words.end());
    return test::run(command);
  };
  const std::string plain = story_of({}).out;
  const std::vector<std::vector<std::string>> cases = {
      {"--typical-p", "0.3"},
      {"--xtc-probability", "1", "--xtc-threshold", "0.05"},
      {"--dry-multiplier", "50", "--dry-allowed-length", "1", "--dry-sequence-breaker", "none"},
      {"--mirostat", "2", "--mirostat-ent", "2", "--mirostat-lr", "0.5"},
      {"--top-n-sigma", "0.5"}};
  for (const auto& words : cases) {
    const Finished finished = story_of(words);
    EXPECT_EQ(finished.status, 0) << finished.err;
    EXPECT_NE(finished.out, plain) << words[0];
    EXPECT_EQ(finished.out, story_of(words).out) << words[0];
  }
  // The first token of the greedy continuation is banned.
  const Finished told = tell({"--raw", "-p", "Once upon", "-n", "1", "--no-display-prompt"});
  const std::string tokenize = "printf '%s' 'Once upon" + told.out +
                               "' | " LEQ_TOOLS_DIR "/leq-inspect " + model("storyteller") +
                               " --tokenize -";
  const Finished ids = test::run({"/bin/sh", "-c", tokenize});
  ASSERT_EQ(ids.status, 0) << ids.err;
  const Json list = parse_json(ids.out, "ids");
  const auto last = list[list.size() - 1].get<std::int64_t>();
  const Finished banned = tell({"--raw", "-p", "Once upon", "-n", "1", "--no-display-prompt",
                                "--logit-bias", std::to_string(last) + "-inf"});
  EXPECT_NE(banned.out, told.out);
  EXPECT_NE(banned.err.find("logit-bias " + std::to_string(last) + "-inf (flag)"),
            std::string::npos)
      << banned.err;
  expect_error(tell({"-p", "x", "-l", "5"}), "--logit-bias is '5'");
  expect_error(tell({"-p", "x", "-l", "4096+1"}), "below the model's vocabulary of 4096");
  expect_error(tell({"-p", "x", "--dry-sequence-breaker", "", "--dry-multiplier", "1"}),
               "--dry-sequence-breaker has 0 bytes");
}

TEST_F(Run, ASeedRepeatsARun) {
  const auto random = [&](const std::string& seed) {
    return test::run(
        {kTool, "-m", model("storyteller"), "--raw", "-p", "Once", "-n", "20", "-s", seed});
  };
  const Finished first = random("7");
  EXPECT_EQ(random("7").out, first.out);
  EXPECT_NE(random("8").out, first.out);
  // A random seed is printed, and passing it repeats the run.
  const Finished drawn = random("-1");
  const std::size_t at = drawn.err.find("seed ");
  ASSERT_NE(at, std::string::npos) << drawn.err;
  const std::string seed =
      drawn.err.substr(at + 5, drawn.err.find_first_of(" \n", at + 5) - at - 5);
  EXPECT_EQ(random(seed).out, drawn.out);
}

TEST_F(Run, StopStringsAndTheFullContextEndTheText) {
  const std::string whole = tell({"--raw", "-p", "Once upon a time", "-n", "40"}).out;
  const std::string stop = whole.substr(40, 5);
  EXPECT_EQ(tell({"--raw", "-p", "Once upon a time", "-n", "40", "-r", "zzz", "-r", stop}).out,
            whole.substr(0, whole.find(stop, 16)));
  const Finished full = tell({"--raw", "-p", "Once upon a time", "-c", "32", "--ignore-eos"});
  EXPECT_EQ(full.status, 0);
  EXPECT_NE(full.err.find("context of 32 positions is full; a larger -c"), std::string::npos)
      << full.err;
}

TEST_F(Run, VerbosePrintsThePlan) {
  const Finished finished = tell({"--raw", "-p", "Once", "-n", "1", "-v", "-ctk", "int8"});
  for (const auto* part : {"device: cpu", "qkv: ", "down: ", "head: ", "keys int8, values f16",
                           "memory: ", "load: ", "tokenizer: "}) {
    EXPECT_NE(finished.err.find(part), std::string::npos) << part << "\n" << finished.err;
  }
}

TEST_F(Run, ErrorsAreOneLineAndStatusOne) {
  const std::string none = folder_ / "none.leq";
  expect_error(test::run({kTool, "-m", none, "-p", "x"}), "none.leq");
  expect_error(test::run({kTool, "-p", "x"}), "-m");
  expect_error(test::run({kTool, "-m", file("bad.leq", "not a model"), "-p", "x"}), "bad.leq");
  expect_error(tell({"-p", "x", "--tempp", "1"}), "--temp");
  expect_error(tell({"-p", "x", "--top-p", "1.5"}), "--top-p");
  expect_error(tell({"-p", "x", "-n", "-5"}), "-n");
  expect_error(tell({"-p", "x", "-c", "100000"}), "-c");
  expect_error(tell({"-p", "x", "-ctk", "q5_1"}), "int8");
  expect_error(tell({"-p", "x", "-f", file("p.txt", "y")}), "-f");
  expect_error(tell({"-p", "x", "-no-cnv", "-st"}), "-no-cnv");
  expect_error(tell({"-p", "a\xff z"}), "offset 1");
  expect_error(tell({"-f", file("bad.txt", "ab\xc3")}), "offset 2");
  expect_error(tell({"-f", file("empty.txt", "")}), "empty");
  expect_error(tell({"-f", file("newline.txt", "\n")}), "empty");
  expect_error(tell({"-f", folder_ / "none.txt"}), "none.txt");
  expect_error(tell({}, ""), "standard input");
  expect_error(tell({"-cnv", "--chat-template", "klingon"}), "chatml");
  expect_error(tell({"-p", "hi", "--chat-template", "klingon"}), "chatml");
}

TEST_F(Run, AModelWithoutATemplateDoesNotChat) {
  for (const char* name : {"models/gpt2-tiny", "models/mistral-tiny"}) {
    LEQ_SHARED_OR_SKIP(other, name);
  }
  expect_error(test::run({kTool, "-m", model("gpt2-tiny"), "-cnv"}, "Hello\n"), "--chat-template");
}

TEST_F(Run, PromptsThatCannotBeUsedAreRefused) {
  for (const char* name : {"models/gpt2-tiny", "models/mistral-tiny"}) {
    LEQ_SHARED_OR_SKIP(other, name);
  }
  std::string text;
  for (int i = 0; i < 30; ++i) text += "once ";
  expect_error(tell({"--raw", "-p", text, "-c", "16"}), "context of 16");
  expect_error(test::run({kTool, "-m", model("gpt2-tiny"), "-p", ""}), "prompt is empty");
  expect_error(test::run({kTool, "-m", model("mistral-tiny"), "-sys", "x", "-p", "y"}),
               "the chat template refuses this conversation");
}

TEST_F(Run, WhatFollowsTheTextHasALineOfItsOwn) {
  const Finished both =
      test::run({"/bin/sh", "-c",
                 kTool + " -m " + model("storyteller") + " --raw -p Once --temp 0 -n 4 -t 1 2>&1"});
  EXPECT_NE(both.out.find("\nleq-run: prompt "), std::string::npos) << both.out;
  const Finished apart = tell({"--raw", "-p", "Once", "-n", "4"});
  EXPECT_FALSE(apart.out.ends_with("\n"));
  EXPECT_EQ(apart.err.find("\n\n"), std::string::npos) << apart.err;
}

// Here standard output is a terminal and standard error is a file.
TEST_F(Run, TheFlagForColoursWinsOverNoColorAndItsVariableDoesNot) {
  const auto coloured = [&](const std::string& environment, const std::string& words) {
    const std::string inner = environment + " " + kTool + " -m " + model("storyteller") +
                              " --raw -p Once --temp 0 -n 2 -t 1 " + words + " 2> /dev/null";
    const Finished finished =
        test::run({"/bin/sh", "-c", "script -qec \"" + inner + "\" /dev/null < /dev/null"});
    return finished.out.find("\033[32m") != std::string::npos;
  };
  if (test::run({"/bin/sh", "-c", "command -v script"}).status != 0) {
    GTEST_SKIP() << "script(1) is not installed";
  }
  EXPECT_FALSE(coloured("", ""));
  EXPECT_TRUE(coloured("", "--color"));
  EXPECT_TRUE(coloured("NO_COLOR=1", "--color"));
  EXPECT_TRUE(coloured("LEQ_ARG_COLOR=1", ""));
  EXPECT_FALSE(coloured("NO_COLOR=1 LEQ_ARG_COLOR=1", ""));
  EXPECT_TRUE(coloured("NO_COLOR= LEQ_ARG_COLOR=1", ""));
}

TEST_F(Run, AMessageHasALimit) {
  const std::string line = "yes \"$(head -c 60000 /dev/zero | tr '\\0' a)";
  for (const std::string& text :
       {std::string("cat /dev/zero"), line + "\\\\\"", "echo '\"\"\"'; " + line + "\""}) {
    const Finished endless = test::run({"/bin/sh", "-c",
                                        "(" + text + ") 2> /dev/null | " + kTool + " --quiet -m " +
                                            model("storyteller") + " -cnv"});
    expect_tool_error(endless, {"a prompt of more than 67.1 MB"});
  }
}

TEST_F(Run, AFullDiskIsAnError) {
  Process process(
      {"/bin/sh", "-c", kTool + " -m " + model("storyteller") + " --raw -p Once -n 4 > /dev/full"},
      Process::Input::pipe);
  EXPECT_EQ(process.finish(), 1);
  EXPECT_NE(process.err.find("leq-run: error: stdout"), std::string::npos) << process.err;
}

TEST_F(Run, AReaderThatGoesAwayEndsItQuietly) {
  std::vector<std::string> command = long_story();
  command.insert(command.end(), {"--raw", "-p", "Once"});
  Process process(command, Process::Input::pipe);
  ASSERT_TRUE(process.wait_for_output("Once"));
  process.close_output();
  EXPECT_EQ(process.finish(), 1000 + SIGPIPE);
  EXPECT_EQ(process.err.find("error"), std::string::npos) << process.err;
}

TEST_F(Run, CtrlCStopsACompletionWithItsSummary) {
  std::vector<std::string> command = long_story();
  command.insert(command.end(), {"--raw", "-p", "Once"});
  Process process(command, Process::Input::pipe);
  ASSERT_TRUE(process.wait_for_output("Once upon"));
  process.signal(SIGINT);
  EXPECT_EQ(process.finish(), 130);
  EXPECT_NE(process.err.find("tokens/s"), std::string::npos) << process.err;
  EXPECT_EQ(process.err.find("is full"), std::string::npos) << process.err;
}

// The devices that are listed can be used; any other name is refused with advice.
TEST_F(Run, DevicesAreListedAndOthersRefusedWithAdvice) {
  const Finished listed = test::run({kTool, "--list-devices"});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_TRUE(listed.out.starts_with("cpu  ")) << listed.out;
  expect_error(tell({"-p", "x", "-dev", "tpu"}), "--list-devices");
  expect_error(tell({"-p", "x", "-dev", "cuda:-1"}),
               "expected cpu, cuda, cuda:N, cuda:GPU-UUID, sim");
  expect_error(tell({"-p", "x", "-dev", "cuda:99"}), "-dev cpu");
  // Users often copy these flags from other commands, so they must not fail without a GPU.
  const auto copied = tell({"--raw", "-p", "x", "-n", "2", "-ngl", "99", "-fa", "1"});
  EXPECT_EQ(copied.status, 0) << copied.err;
  EXPECT_NE(copied.err.find("leq-run: -ngl 99: no GPU is usable here"), std::string::npos)
      << copied.err;
  expect_error(tell({"-p", "x", "-dev", "cpu", "-ngl", "99"}), "contradict");
  expect_error(tell({"-p", "x", "-ngl", "some"}), "0 (the CPU) or all (a GPU)");
}

TEST_F(Run, TheEmulatedGpuWritesTheSameText) {
  if (test::run({kTool, "--list-devices"}).out.find("sim  ") == std::string::npos) {
    GTEST_SKIP() << "this build has no emulated GPU";
  }
  const auto text = [&](std::vector<std::string> device) {
    std::vector<std::string> words = {"--raw", "-p", "Once upon a time", "-n", "8", "-ctk", "int8"};
    words.insert(words.end(), device.begin(), device.end());
    const Finished finished = tell(words);
    EXPECT_EQ(finished.status, 0) << finished.err;
    return finished.out;
  };
  EXPECT_EQ(text({"-dev", "sim"}), text({"-ngl", "0"}));
  expect_error(tell({"-p", "x", "-dev", "sim", "-ngl", "3"}), "the model has 6 layers");
}

TEST_F(Run, ASingleTurnIsTheTemplatesCompletion) {
  const Finished chat = tell({"-st", "-p", "Tell me a story about a fox.", "-n", "20"});
  EXPECT_EQ(chat.status, 0) << chat.err;
  const Finished raw = tell({"--raw", "-p", "[INST] Tell me a story about a fox. [/INST]", "-n",
                             "20", "--no-display-prompt"});
  ASSERT_FALSE(raw.out.empty());
  EXPECT_EQ(chat.out, raw.out.substr(raw.out.find_first_not_of(" \n")) + "\n");
}

TEST_F(Run, AChatOverAPipeAnswersLineByLine) {
  const std::string saved = folder_ / "chat.json";
  const Finished chat =
      tell({"-cnv", "-n", "12", "-s", "3"},
           "Hello!\nTell me a story.\n/regen\n/system\n/save " + saved + "\n/exit\nnever read\n");
  EXPECT_EQ(chat.status, 0);
  EXPECT_GE(std::ranges::count(chat.out, '\n'), 3) << chat.out;
  EXPECT_EQ(chat.out.find("> "), std::string::npos) << chat.out;
  const Json json = parse_json(read_file(saved, kMaxJsonBytes), saved);
  ASSERT_EQ(json["messages"].size(), 4u);
  EXPECT_EQ(json["replies"], 3);
  EXPECT_EQ(json["messages"][2]["content"], "Tell me a story.");

  // Greedy replies of a resumed chat equal those of an uninterrupted one.
  const std::string lines = "Hello!\nTell me a story.\n";
  const std::string whole = tell({"-cnv", "-n", "12"}, lines + "And then?\n").out;
  const std::string begun = tell({"-cnv", "-n", "12"}, lines + "/save " + saved + "\n").out;
  const Finished rest = tell({"-cnv", "-n", "12"}, "/load " + saved + "\nAnd then?\n");
  EXPECT_EQ(begun + rest.out, whole) << rest.err;
}

TEST_F(Run, LinesAreJoinedByBackslashesOrInMultiLineInputUntilOne) {
  const std::string joined = tell({"-cnv", "-n", "12"}, "Tell me\\\na story.\n").out;
  EXPECT_EQ(tell({"-cnv", "-n", "12", "-mli"}, "Tell me\na story.\\\n").out, joined);
  EXPECT_EQ(std::ranges::count(tell({"-cnv", "-n", "1"}, "Tell me\na story.\n").out, '\n'), 2);
}

TEST_F(Run, SettingsCanBeChangedInAChat) {
  const std::string saved = folder_ / "chat.json";
  const Finished chat =
      tell({"-cnv", "-n", "4"},
           "/set\n/set top-k 5\n/set typical 0.5\n/set repeat_penalty 1.1\nHello!\n/save " + saved +
               "\n");
  EXPECT_NE(chat.err.find("temp 0, top-k 40,"), std::string::npos) << chat.err;
  EXPECT_NE(chat.err.find("typical is 0.5 from now on"), std::string::npos) << chat.err;
  const Json settings = parse_json(read_file(saved, kMaxJsonBytes), saved)["settings"];
  EXPECT_EQ(settings["top_k"], 5);
  EXPECT_EQ(settings["typical"], 0.5);
  EXPECT_EQ(settings["penalties_when_greedy"], true);
  for (const auto& [line, refused] : std::vector<std::pair<std::string, std::string>>{
           {"heat 1", "heat: no parameter of this name"},
           {"num_predict 2000000000000", "a number of tokens"},
           {"stop \xff", "/set stop: byte 0xff"},
           {"temp", "/set temp: expected 0 "},
           {"top-k 1.5", "expected 1 or more"},
           {"top-p 2", "--top-p is 2, expected"}}) {
    const Finished failed = tell({"-cnv", "-n", "4"}, "/set " + line + "\nHello!\n");
    EXPECT_EQ(failed.status, 1);
    EXPECT_NE(failed.err.find(refused), std::string::npos) << refused << failed.err;
    EXPECT_EQ(failed.out, "");
  }
}

TEST_F(Run, AChatThatCannotBeLoadedChangesNothing) {
  const std::string saved = folder_ / "chat.json", after = folder_ / "after.json";
  tell({"-cnv", "-n", "4", "-l", "5+1"}, "Hello!\n/save " + saved + "\n");
  const std::string other =
      file("other.json", replace_all(read_file(saved, kMaxJsonBytes), "5+1", "99999+1"));
  Process process(story({"-n", "4"}), Process::Input::terminal, {"TERM=xterm"});
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("Hi.\r");
  ASSERT_TRUE(process.wait_for_output("\n")) << process.err;
  process.write("/load " + other + "\r");
  ASSERT_TRUE(process.wait_for_error("--logit-bias is for token 99999")) << process.err;
  process.write("/save " + after + "\r/exit\r");
  EXPECT_EQ(process.finish(), 0);
  EXPECT_EQ(saved_message(after), "Hi.");
  const Json settings = parse_json(read_file(after, kMaxJsonBytes), after)["settings"];
  EXPECT_TRUE(settings["logit_bias"].empty());
}

// Later messages in a pipe were written for a conversation without the error, so the chat ends.
TEST_F(Run, AnErrorEndsAChatOverAPipe) {
  const std::string good = folder_ / "chat.json";
  struct Case {
    std::string line, expected;
  };
  for (const Case& item :
       {Case{"/load " + std::string(folder_ / "none.json"), "none.json"},
        Case{"/load " + file("bad.json", "{\"leq_chat\": 1}"), "bad.json"},
        Case{"/regen", "no reply to write again"}, Case{"/nonsense", "unknown command /nonsense"},
        Case{"/save /nowhere/chat.json", "/nowhere"}, Case{"\xff", "is not UTF-8"}}) {
    const Finished chat = tell({"-cnv", "-n", "4"}, item.line + "\nHello!\n/save " + good + "\n");
    EXPECT_EQ(chat.status, 1) << item.line;
    EXPECT_NE(chat.err.find("leq-run: error: "), std::string::npos) << chat.err;
    EXPECT_NE(chat.err.find(item.expected), std::string::npos) << chat.err;
    EXPECT_EQ(chat.out, "") << item.line;
    EXPECT_FALSE(fs::exists(good)) << item.line;
  }
}

TEST_F(Run, CommandErrorsDoNotEndAChatOnATerminal) {
  Process process(story({"-n", "4"}), Process::Input::terminal, {"TERM=xterm"});
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("/load " + std::string(folder_ / "none.json") + "\r");
  ASSERT_TRUE(process.wait_for_error("No such file")) << process.err;
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("/regen\r");
  ASSERT_TRUE(process.wait_for_error("no reply to write again")) << process.err;
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("Hello!\r");
  ASSERT_TRUE(process.wait_for_output("\n")) << process.err;
  process.write("/exit\r");
  EXPECT_EQ(process.finish(), 0);
}

TEST_F(Run, ATerminalHasAPromptAndHistory) {
  Process process(story({"-n", "6"}), Process::Input::terminal, {"TERM=xterm"});
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("Hello!\r");
  ASSERT_TRUE(process.wait_for_output("\n")) << process.err;
  process.write("\033[A\r");  // up: recalls the message
  ASSERT_TRUE(process.wait_for_output("\n")) << process.err;
  process.write("/exit\r");
  EXPECT_EQ(process.finish(), 0);
  EXPECT_NE(process.err.find("reply 12 tokens"), std::string::npos) << process.err;
}

TEST_F(Run, WhatIsPastedOnATerminalIsOneMessage) {
  const std::string saved = folder_ / "chat.json";
  Process process(story({"-n", "4"}), Process::Input::terminal, {"TERM=xterm"});
  ASSERT_TRUE(process.wait_for_error("\033[?2004h")) << process.err;  // enables bracketed paste
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("Say: \033[200~one\rtwo\t2\r\001\xc3\xa9 three\r\033[201~\r");
  ASSERT_TRUE(process.wait_for_output("\n")) << process.err;
  ASSERT_TRUE(process.wait_for_error("\033[?2004l")) << process.err;  // disabled while it generates
  process.write("/save " + saved + "\r/exit\r");
  EXPECT_EQ(process.finish(), 0);
  EXPECT_NE(process.err.find("reply 4 tokens"), std::string::npos) << process.err;
  EXPECT_EQ(saved_message(saved), "Say: one\ntwo\t2\n\xc3\xa9 three");
}

TEST_F(Run, ADumbTerminalGetsNoCodes) {
  Process process(story({"-n", "4"}), Process::Input::terminal, {"TERM=dumb"});
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("/exit\r");
  EXPECT_EQ(process.finish(), 0);
  EXPECT_EQ(process.err.find("\033[?"), std::string::npos) << process.err;
}

TEST_F(Run, TwoCtrlCInABurstLeave) {
  Process process(story({"-n", "4"}), Process::Input::terminal, {"TERM=xterm"});
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("\003\003");
  EXPECT_EQ(process.finish(), 0);
  EXPECT_NE(process.err.find("again"), std::string::npos) << process.err;
}

TEST_F(Run, ALineIsDrawnAgainWhereItComesBackToTheForeground) {
  Process process(story({"-n", "4"}), Process::Input::terminal, {"TERM=xterm"});
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("half a message");
  ASSERT_TRUE(process.wait_for_error("message")) << process.err;
  process.signal(SIGSTOP);
  process.signal(SIGCONT);
  ASSERT_TRUE(process.wait_for_error("\033[?2004h")) << process.err;
  ASSERT_TRUE(process.wait_for_error("> half a message")) << process.err;
  process.write("\032");  // Ctrl-Z, which a program without a shell survives
  ASSERT_TRUE(process.wait_for_error("^Z")) << process.err;
  ASSERT_TRUE(process.wait_for_error("> half a message")) << process.err;
  process.write("\003/exit\r");
  EXPECT_EQ(process.finish(), 0);
}

// The line has two rows, and four when the terminal becomes narrower, so the prompt's row is then
// three above the cursor's.
TEST_F(Run, AWrappedLineIsDrawnAgainWhereTheSizeChanges) {
  Process process(story({"-n", "4"}), Process::Input::terminal, {"TERM=xterm"});
  process.resize(24, 40);
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("0123456789 0123456789 0123456789 0123456789 0123456789 012345END");
  ASSERT_TRUE(process.wait_for_error("END")) << process.err;
  process.resize(24, 20);
  ASSERT_TRUE(process.wait_for_error("\033[3A\r\033[J")) << process.err;
  ASSERT_TRUE(process.wait_for_error("> 0123456789 012345")) << process.err;
  process.write("\003/exit\r");
  EXPECT_EQ(process.finish(), 0);
}

TEST_F(Run, CtrlCOnATerminalStopsTheReplyAndTwiceLeaves) {
  Process process(long_story(), Process::Input::terminal, {"TERM=xterm"});
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("Tell me a long story.\r");
  ASSERT_TRUE(process.wait_for_output(" ")) << process.err;
  process.write("\003");
  ASSERT_TRUE(process.wait_for_error("interrupted")) << process.err;
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("half a message");
  ASSERT_TRUE(process.wait_for_error("message")) << process.err;  // the line editor is active
  process.write("\003");                                          // discarded
  ASSERT_TRUE(process.wait_for_error("^C")) << process.err;
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("\003");
  ASSERT_TRUE(process.wait_for_error("again")) << process.err;
  ASSERT_TRUE(process.wait_for_error("> ")) << process.err;
  process.write("\003");
  EXPECT_EQ(process.finish(), 0);
}

}  // namespace
}  // namespace leq
