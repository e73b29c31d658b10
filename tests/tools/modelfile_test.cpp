// Modelfiles: values read, notes, and the place in each error.
#include "tools/common/modelfile.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "errors.h"
#include "temporary_folder.h"
#include "tools/common/mains.h"
#include "tools/common/options.h"

namespace leq {
namespace {

using Parameters = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kMario = R"(# a plumber
FROM llama3.2:1b
parameter temperature 0.5
PARAMETER stop "<|end|>"
PARAMETER stop """two
lines"""
PARAMETER num_gpu 1
TEMPLATE """{{ .Prompt }}
FROM nowhere
"""
SYSTEM """
You are Mario.
  A \n is no line.
"""
LICENSE none
)";

TEST(ModelfileText, HasModelSystemTextAndParameters) {
  const Modelfile file = read_modelfile(kMario, "Modelfile");
  EXPECT_EQ(file.from, "llama3.2:1b");
  EXPECT_EQ(file.system, "\nYou are Mario.\n  A \\n is no line.\n");
  EXPECT_EQ(file.parameters,
            (Parameters{{"temperature", "0.5"}, {"stop", "<|end|>"}, {"stop", "two\nlines"}}));
  ASSERT_EQ(file.notes.size(), 2u);
  EXPECT_TRUE(file.notes[0].starts_with("Modelfile:7: PARAMETER num_gpu: ")) << file.notes[0];
  EXPECT_TRUE(file.notes[1].starts_with("Modelfile:8: TEMPLATE is not taken")) << file.notes[1];
}

TEST(ModelfileText, IsReadAsItWasWritten) {
  const Modelfile file = read_modelfile(kMario, "Modelfile");
  const Modelfile again = read_modelfile(modelfile_text(file), "again");
  EXPECT_EQ(again.from, file.from);
  EXPECT_EQ(again.system, file.system);
  EXPECT_EQ(again.parameters, file.parameters);
  EXPECT_TRUE(again.notes.empty());
}

// All texts of up to five quotes, line ends, blanks and letters.
TEST(ModelfileText, KeepsAnyValueThatAModelfileCanHold) {
  int refused = 0;
  for (int number = 1; number < 1 << 12; ++number) {
    std::string value;
    for (int rest = number; rest > 1; rest >>= 2) value += "\"\n a"[rest & 3];
    const bool line = value.find('\n') == value.npos;
    const bool in_one = line && !value.starts_with("\"\"") && value != "\"";
    const bool in_three = (value + "\"\"\"").find("\"\"\"") == value.size();
    const bool bare = line && !value.empty() && value.front() != ' ' && value.back() != ' ' &&
                      !value.starts_with("\"\"\"") &&
                      (value.size() == 1 || value.front() != '"' || value.back() != '"');
    const Modelfile file = {"m", value, {{"stop", value}, {"stop", "next"}}};
    try {
      const Modelfile again = read_modelfile(modelfile_text(file), "again");
      EXPECT_EQ(again.from, "m") << value;
      EXPECT_EQ(again.system, value);
      EXPECT_EQ(again.parameters, file.parameters) << value;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(": a Modelfile cannot hold the text "),
                std::string::npos);
      EXPECT_FALSE(in_one || in_three || bare) << value;
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(ModelfileText, IsTheSameAsACommandLine) {
  std::vector<std::string> words;
  for (const auto& [option, value] : options_of(read_modelfile(kMario, "Modelfile"))) {
    words.push_back("--" + option + "=" + value);
  }
  const auto none = [](const std::string&) { return std::nullopt; };
  const Options options = parse_options(kRun.spec(), words, none);
  EXPECT_EQ(options.real("temp"), 0.5);
  EXPECT_EQ(options.list("reverse-prompt"), (std::vector<std::string>{"<|end|>", "two\nlines"}));
  EXPECT_EQ(options.text("system-prompt"), "\nYou are Mario.\n  A \\\\n is no line.\n")
      << "-sys replaces escapes";
}

TEST(ModelfileText, NamesThePlaceOfAMistake) {
  struct Case {
    const char *text, *expected;
  };
  for (const Case& c :
       {Case{"SYSTEM x\n", "expected a line FROM MODEL, found none"},
        {"FROM a\nFROM b", "f:2: expected one FROM"},
        {"FROM a\nADAPTER x", "f:2: ADAPTER: there are no adapters here"},
        {"FROM a\n\nFORM b", "f:3: unknown instruction 'FORM'"},
        {"FROM a\nPARAMETER temperatur 1",
         "f:2: PARAMETER temperatur: no parameter of this name; did "
         "you mean temperature?"},
        {"FROM a\nPARAMETER top_k", "f:2: expected PARAMETER NAME VALUE"},
        {"FROM a\nSYSTEM \"\"\"x\ny", "f:2: \"\"\" begins a text that has no end"},
        {"FROM a\nSYSTEM \"\"\"x\ny\"\"\" z", "f:3: expected the end of the line"}}) {
    const std::string error = test::error_of([&] { read_modelfile(c.text, "f"); });
    EXPECT_NE(error.find(c.expected), std::string::npos) << error;
  }
}

TEST(ModelfileText, OfAnyBytesIsReadOrRefused) {
  const std::string whole = kMario;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    try {
      EXPECT_EQ(read_modelfile(whole.substr(0, length), "f").from.substr(0, 1), "l");
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("f:")) << error.what();
    }
  }
}

// A created name sets what its file has where the command line has nothing.
TEST(CreatedName, SetsWhatIsNotGiven) {
  const test::TemporaryFolder folder;
  ::setenv("LEQ_MODELS", folder.path().c_str(), 1);
  folder.write("mario.modelfile", kMario);
  const auto none = [](const std::string&) { return std::nullopt; };
  const std::vector<std::string> words = {"--temp", "0.1"};
  Options options = parse_options(kRun.spec(), words, none);
  EXPECT_EQ(follow_created("mario:latest", options), "llama3.2:1b");
  EXPECT_EQ(created_path("mario:latest"), folder / "mario.modelfile");
  EXPECT_EQ(options.real("temp"), 0.1);
  EXPECT_EQ(options.list("reverse-prompt").size(), 2u);
  EXPECT_TRUE(options.given("system-prompt"));
  EXPECT_EQ(follow_created("luigi", options), "luigi");
  EXPECT_EQ(created_models().size(), 1u);
  for (const char* name : {"", "../x", "a/b", ".x", "-x", "x.leq", "x y"}) {
    EXPECT_THROW(created_path(name), Error) << name;
  }
  ::unsetenv("LEQ_MODELS");
}

}  // namespace
}  // namespace leq
