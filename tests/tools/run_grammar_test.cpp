// leq-run with a grammar or a schema: its output must match the grammar, and errors give the
// position.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "models_fixture.h"
#include "shared_data.h"
#include "tools/process.h"

namespace leq {
namespace {

namespace fs = std::filesystem;
using test::Finished;

class RunGrammar : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / (std::string("leq_run_grammar_") + test->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    model_ = test::quantized(*test::shared_path("models/storyteller"), "int8");
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  Finished run(const std::vector<std::string>& words) const {
    std::vector<std::string> command = {
        LEQ_TOOLS_DIR "/leq-run", "-m", model_, "-t", "1", "-s", "5", "-n", "150"};
    command.insert(command.end(), words.begin(), words.end());
    return test::run(command);
  }

  fs::path folder_;
  std::string model_;
};

constexpr const char* kSchema =
    R"({"type": "object", "properties": {"animal": {"enum": ["cat", "dog"]}, "legs": {"type": "integer", "minimum": 1, "maximum": 4}}, "required": ["animal", "legs"]})";

TEST_F(RunGrammar, RepliesAreTextsOfIt) {
  for (const char* temperature : {"0", "0.9"}) {
    for (const auto& flags : std::vector<std::vector<std::string>>{
             {"-j", kSchema}, {"--json-schema-file", file("s.json", kSchema)}}) {
      std::vector<std::string> words = {"--raw",  "-p",       "A cat:", "--no-display-prompt",
                                        "--temp", temperature};
      words.insert(words.end(), flags.begin(), flags.end());
      const Finished done = run(words);
      ASSERT_EQ(done.status, 0) << done.err;
      const Json json = parse_json(done.out, "reply");
      EXPECT_TRUE(json["animal"].text() == "cat" || json["animal"].text() == "dog") << done.out;
      EXPECT_GE(json["legs"].get<int>(), 1);
      EXPECT_LE(json["legs"].get<int>(), 4);
    }
  }
  const Finished gbnf = run({"--raw", "-p", "Yes or no?", "--no-display-prompt", "--grammar-file",
                             file("g.gbnf", "root ::= \" yes\" | \" no\"\n")});
  ASSERT_EQ(gbnf.status, 0) << gbnf.err;
  EXPECT_TRUE(gbnf.out == " yes" || gbnf.out == " no") << gbnf.out;
  const Finished chat = run({"-cnv", "-st", "-p", "Hello", "--chat-template", "chatml", "--grammar",
                             "root ::= \"I am a cat.\""});
  ASSERT_EQ(chat.status, 0) << chat.err;
  EXPECT_NE(chat.out.find("I am a cat."), std::string::npos) << chat.out;
  const Finished many = run({"-f", file("p.txt", "One\nTwo\n"), "-np", "2", "--no-display-prompt",
                             "--grammar", "root ::= \"ok\""});
  ASSERT_EQ(many.status, 0) << many.err;
  EXPECT_EQ(many.out, "ok\n\nok\n");
}

// A reply is a whole text of the schema, or the status says that it was cut.
TEST_F(RunGrammar, ACutReplyHasAStatusOfItsOwn) {
  bool is_whole = false;
  for (int tokens = 2; !is_whole && tokens < 100; ++tokens) {
    const Finished done = run({"--raw", "-p", "A cat:", "--no-display-prompt", "--temp", "0", "-j",
                               kSchema, "-n", std::to_string(tokens)});
    try {
      (void)parse_json(done.out, "reply");
      is_whole = true;
    } catch (const Error&) {
    }
    EXPECT_EQ(done.status, is_whole ? 0 : 2) << tokens << ": " << done.out;
    EXPECT_EQ(done.err.find("the reply is cut after " + std::to_string(tokens) + " tokens") ==
                  std::string::npos,
              is_whole)
        << done.err;
  }
  EXPECT_TRUE(is_whole);
  for (const char* tokens : {"2", "20"}) {
    const Finished chat = run({"-st", "-p", "Hello", "--chat-template", "chatml", "--grammar",
                               "root ::= \"I am a cat.\"", "-n", tokens});
    EXPECT_EQ(chat.status, *tokens == '2' && tokens[1] == 0 ? 2 : 0) << chat.out << chat.err;
  }
}

TEST_F(RunGrammar, MistakesAreToldByTheirPlace) {
  const auto error = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"-p", "x"};
    words.insert(words.end(), flags.begin(), flags.end());
    const Finished done = run(words);
    EXPECT_EQ(done.status, 1);
    EXPECT_EQ(done.out, "");
    return done.err;
  };
  EXPECT_NE(error({"--grammar", "root ::= b"}).find("--grammar: the rule b is not defined"),
            std::string::npos);
  EXPECT_NE(
      error({"-j", "{\"not\": {}}"}).find("--json-schema: #: the keyword 'not' is not supported"),
      std::string::npos);
  EXPECT_NE(error({"--grammar-file", (folder_ / "none").string()}).find("none"), std::string::npos);
  EXPECT_NE(error({"--json-schema-file", file("s.json", "{")}).find("s.json: invalid JSON"),
            std::string::npos);
  EXPECT_NE(error({"-j", "{}", "--grammar", "root ::= \"a\""}).find("contradict each other"),
            std::string::npos);
}

}  // namespace
}  // namespace leq
