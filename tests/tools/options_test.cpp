// Command lines: spellings, values, ranges, environment, help and the errors that users see.
#include "tools/common/options.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "errors.h"
#include "tools/common/help.h"
#include "tools/common/model_options.h"

namespace leq {
namespace {

ToolSpec sample_tool() {
  ToolSpec tool{.name = "leq-sample", .summary = "a sample", .usage = {"-m model.leq [FILE]"}};
  tool.options = model_options();
  const std::vector<Option> own = {
      {.name = "prompt", .spellings = "-p", .kind = OptionKind::text, .value_name = "TEXT"},
      {.name = "temp",
       .spellings = "--temperature",
       .kind = OptionKind::real,
       .value_name = "T",
       .fallback = "0.8",
       .help = "temperature",
       .minimum = 0,
       .maximum = 100},
      {.name = "predict",
       .spellings = "-n --n-predict",
       .kind = OptionKind::integer,
       .value_name = "N",
       .fallback = "-1",
       .minimum = -1},
      {.name = "reverse-prompt", .spellings = "-r", .kind = OptionKind::list, .value_name = "S"},
      {.name = "conversation", .spellings = "-cnv", .fallback = "auto", .negations = "-no-cnv"},
      {.name = "escape", .spellings = "-e", .fallback = "true"},
      {.name = "depth",
       .spellings = "-d",
       .kind = OptionKind::integers,
       .fallback = "0",
       .minimum = 0},
      {.name = "output",
       .spellings = "-o",
       .kind = OptionKind::text,
       .fallback = "text",
       .choices = {"text", "json"}},
  };
  tool.options.insert(tool.options.end(), own.begin(), own.end());
  tool.max_positionals = 1;
  return tool;
}

using Variables = std::map<std::string, std::string>;

Options parse(std::vector<std::string> words, const Variables& variables = {}) {
  words.insert(words.begin(), {"-m", "model.leq"});
  return parse_options(sample_tool(), words,
                       [&](const std::string& name) -> std::optional<std::string> {
                         const auto found = variables.find(name);
                         if (found == variables.end()) return std::nullopt;
                         return found->second;
                       });
}

std::string error_of(std::vector<std::string> words, const Variables& variables = {}) {
  return test::error_of([&] { parse(std::move(words), variables); });
}

TEST(Options, DefaultsHoldWhereNothingIsGiven) {
  const Options options = parse({});
  EXPECT_EQ(options.text("model"), "model.leq");
  EXPECT_DOUBLE_EQ(options.real("temp"), 0.8);
  EXPECT_EQ(options.integer("predict"), -1);
  EXPECT_FALSE(options.given("temp"));
  EXPECT_TRUE(options.has("temp"));
  EXPECT_FALSE(options.has("conversation"));
  EXPECT_TRUE(options.flag("escape"));
  EXPECT_TRUE(options.list("reverse-prompt").empty());
}

TEST(Options, TakesTheWordsThatLlamaCppUsersType) {
  const Options options =
      parse({"-ctk", "int8", "-ctv", "f16", "-np",         "2",  "-ngl",
             "0",    "-tb",  "4",    "-c",  "128",         "-t", "4",
             "-ub",  "64",   "-dev", "cpu", "--n-predict", "-1", "--temperature=0.5",
             "-cnv"});
  EXPECT_EQ(options.text("cache-type-k"), "int8");
  EXPECT_EQ(options.text("cache-type-v"), "f16");
  EXPECT_EQ(options.integer("parallel"), 2);
  EXPECT_EQ(options.integer("ctx-size"), 128);
  EXPECT_EQ(options.integer("threads-batch"), 4);
  EXPECT_DOUBLE_EQ(options.real("temp"), 0.5);
  EXPECT_TRUE(options.flag("conversation"));
}

TEST(Options, SwitchesAreUndoneByTheirNoForm) {
  EXPECT_FALSE(parse({"-no-cnv"}).flag("conversation"));
  EXPECT_FALSE(parse({"--no-conversation"}).flag("conversation"));
  EXPECT_FALSE(parse({"--no-escape"}).flag("escape"));
  EXPECT_TRUE(parse({"--no-escape", "-e"}).flag("escape"));
  EXPECT_FALSE(parse({"--no-mmap"}).flag("mmap"));
  EXPECT_FALSE(parse({"--escape=false"}).flag("escape"));
}

TEST(Options, ValuesAreTakenAsTheyAre) {
  const std::string prompt = "Once, upon\na time -ctk --temp=3, 'x' " + std::string(200'000, 'a');
  EXPECT_EQ(parse({"-p", prompt}).text("prompt"), prompt);
  EXPECT_EQ(parse({"--prompt=" + prompt}).text("prompt"), prompt);
  EXPECT_EQ(parse({"-p", ""}).text("prompt"), "");
  EXPECT_EQ(parse({"--prompt=-ctk"}).text("prompt"), "-ctk");
  EXPECT_EQ(parse({"-p", "- a list"}).text("prompt"), "- a list");
}

TEST(Options, RepeatedTextsAreCollectedWithoutCuttingAtCommas) {
  const Options options = parse({"-r", "User:", "--reverse-prompt", "a, b", "-r=\n"});
  EXPECT_EQ(options.list("reverse-prompt"), (std::vector<std::string>{"User:", "a, b", "\n"}));
}

TEST(Options, LastOfARepeatedValueWins) {
  EXPECT_EQ(parse({"-c", "1", "--ctx-size", "2", "--ctx_size=3"}).integer("ctx-size"), 3);
}

TEST(Options, NumbersMayTouchTheirLetter) {
  EXPECT_EQ(parse({"-t8"}).integer("threads"), 8);
  EXPECT_EQ(parse({"-n-1"}).integer("predict"), -1);
}

TEST(Options, ListsOfNumbersAreCutAtCommas) {
  EXPECT_EQ(parse({"-d", "0,512, 4096"}).integers("depth"),
            (std::vector<std::int64_t>{0, 512, 4096}));
  EXPECT_EQ(error_of({"-d", "1,,2"}), "-d: expected a whole number of at least 0, found ''");
}

TEST(Options, FlagsWinOverVariablesAndVariablesOverDefaults) {
  const Variables variables = {{"LEQ_ARG_TEMP", "0.25"},
                               {"LEQ_ARG_CTX_SIZE", "77"},
                               {"LEQ_ARG_NO_ESCAPE", "1"},
                               {"LEQ_ARG_CONVERSATION", "off"},
                               {"LEQ_ARG_REVERSE_PROMPT", "a,b"}};
  const Options options = parse({"--temp", "0.5"}, variables);
  EXPECT_DOUBLE_EQ(options.real("temp"), 0.5);
  EXPECT_EQ(options.integer("ctx-size"), 77);
  EXPECT_TRUE(options.given("ctx-size"));
  EXPECT_FALSE(options.flag("escape"));
  EXPECT_TRUE(options.has("conversation"));
  EXPECT_FALSE(options.flag("conversation"));
  EXPECT_EQ(options.list("reverse-prompt"), std::vector<std::string>{"a,b"});
  EXPECT_EQ(error_of({}, {{"LEQ_ARG_TEMP", "hot"}}),
            "LEQ_ARG_TEMP: expected a number in 0..100, found 'hot'");
  EXPECT_EQ(error_of({}, {{"LEQ_ARG_CONVERSATION", "perhaps"}}),
            "LEQ_ARG_CONVERSATION: expected 1 | 0 (true | false, on | off, yes | no), found "
            "'perhaps'");
}

TEST(Options, AVariableMayHaveAnyLongNameOfItsOption) {
  EXPECT_DOUBLE_EQ(parse({}, {{"LEQ_ARG_TEMPERATURE", "0.25"}}).real("temp"), 0.25);
  EXPECT_EQ(parse({}, {{"LEQ_ARG_N_PREDICT", "3"}}).integer("predict"), 3);
  EXPECT_EQ(parse({}, {{"LEQ_ARG_N_GPU_LAYERS", "0"}}).text("gpu-layers"), "0");
  // The variable with the option's own name takes precedence over others, and any over the default.
  EXPECT_DOUBLE_EQ(
      parse({}, {{"LEQ_ARG_TEMPERATURE", "0.25"}, {"LEQ_ARG_TEMP", "0.5"}}).real("temp"), 0.5);
  EXPECT_TRUE(parse({}, {{"LEQ_ARG_TEMPERATURE", "1"}}).from_environment("temp"));
  EXPECT_EQ(error_of({}, {{"LEQ_ARG_TEMPERATURE", "hot"}}),
            "LEQ_ARG_TEMPERATURE: expected a number in 0..100, found 'hot'");
}

TEST(Options, MisspeltVariablesAreTold) {
  const auto told = [](std::vector<std::string> variables) {
    return misspelt_variables(sample_tool(), variables);
  };
  EXPECT_EQ(told({"LEQ_ARG_TMEP"}),
            std::vector<std::string>{
                "LEQ_ARG_TMEP is no variable of leq-sample: did you mean LEQ_ARG_TEMP?"});
  EXPECT_EQ(told({"LEQ_ARG_CTX_SZE"}).at(0).substr(0, 16), "LEQ_ARG_CTX_SZE ");
  EXPECT_TRUE(told({"LEQ_ARG_TEMP", "LEQ_ARG_TEMPERATURE", "LEQ_ARG_NO_ESCAPE", "LEQ_ARG_N_PREDICT",
                    "LEQ_ARG_HELP", "LEQ_ARG_VERSION", "TMEP", "PATH", "LEQ_ARGTEMP"})
                  .empty());
  EXPECT_TRUE(told({"LEQ_ARG_ENTIRELY_OTHER"}).empty());  // it may belong to another tool
  const auto known = [] { return std::vector<std::string>{"LEQ_ARG_PORT"}; };
  EXPECT_EQ(misspelt_variables(sample_tool(),
                               std::vector<std::string>{"LEQ_ARG_PORT", "LEQ_ARG_FOO"}, known),
            std::vector<std::string>{"LEQ_ARG_FOO is no variable of leq-sample or another tool"});
  // A letter at the end counts where the variables of all tools are known.
  for (const char* slip : {"LEQ_ARG_CTX_SIZ", "LEQ_ARG_TEMPP"}) {
    EXPECT_TRUE(told({slip}).empty()) << slip;
    const auto lines = misspelt_variables(sample_tool(), std::vector<std::string>{slip}, known);
    EXPECT_NE(lines.at(0).find("did you mean LEQ_ARG_"), std::string::npos) << lines.at(0);
  }
}

TEST(Options, ErrorsNameWordValueAndRange) {
  EXPECT_EQ(error_of({"--temp", "-1"}), "--temp: expected a number in 0..100, found '-1'");
  EXPECT_EQ(error_of({"--temp", "nan"}), "--temp: expected a number in 0..100, found 'nan'");
  EXPECT_EQ(error_of({"-n", "ten"}), "-n: expected a whole number of at least -1, found 'ten'");
  EXPECT_EQ(error_of({"-n", "1.5"}), "-n: expected a whole number of at least -1, found '1.5'");
  EXPECT_EQ(error_of({"-n", "99999999999999999999"}),
            "-n: expected a whole number of at least -1, found '99999999999999999999'");
  EXPECT_EQ(error_of({"-o", "xml"}), "-o: expected text | json, found 'xml'");
  EXPECT_EQ(error_of({"-m", ""}), "-m: expected the name of a file, found nothing");
  EXPECT_EQ(error_of({"-p"}), "-p: a value (TEXT) must follow");
  EXPECT_EQ(error_of({"-p", "-n", "3"}),
            "-p: a value (TEXT) must follow, found the option -n; if it is meant, write -p=-n");
  EXPECT_EQ(error_of({"a.leq", "b.leq"}), "unexpected argument 'b.leq'; see leq-sample --help");
}

TEST(Options, UnknownWordsAreAnsweredWithTheNearestKnownOne) {
  EXPECT_EQ(error_of({"--tmep", "1"}), "unknown option --tmep; did you mean --temp?");
  EXPECT_EQ(error_of({"-temp", "1"}), "unknown option -temp; did you mean --temp?");
  EXPECT_EQ(error_of({"--ctx", "1"}), "unknown option --ctx; did you mean --ctx-size?");
  EXPECT_EQ(error_of({"--ctk", "f16"}), "unknown option --ctk; did you mean -ctk?");
  EXPECT_EQ(error_of({"--prompts=x"}), "unknown option --prompts; did you mean --prompt?");
  EXPECT_EQ(error_of({"--entirely-other"}),
            "unknown option --entirely-other; see leq-sample --help");
  EXPECT_EQ(error_of({"-x"}), "unknown option -x; see leq-sample --help");
  EXPECT_EQ(error_of({"-phello"}), "unknown option -phello; see leq-sample --help");
}

// If two names are at equal distance, the longer is suggested: typos mostly omit letters.
TEST(Options, TheNearestWordIsTheLongerOneOfTwo) {
  const std::vector<std::string> known = {"--tp", "--temp", "--top-p"};
  EXPECT_EQ(nearest_word("--tmp", known), "--temp");
  EXPECT_EQ(nearest_word("--tpp", known), "--tp");
}

// These values would be interpreted by cxxopts: a list, a group of letters, a hexadecimal number.
TEST(Options, ValuesAreNeverReadAsMoreThanText) {
  EXPECT_EQ(parse({"-p", "a,b=c,,--d"}).text("prompt"), "a,b=c,,--d");
  EXPECT_EQ(parse({"-p=--"}).text("prompt"), "--");
  EXPECT_EQ(parse({"-r", "--", "x"}).list("reverse-prompt"), std::vector<std::string>{"--"});
  EXPECT_EQ(parse({"a=b,c"}).positionals(), std::vector<std::string>{"a=b,c"});
  EXPECT_EQ(parse({"--", "--prompt"}).positionals(), std::vector<std::string>{"--prompt"});
  EXPECT_EQ(error_of({"-c", "0x10"}), "-c: expected a whole number in 0..16777216, found '0x10'");
  EXPECT_EQ(error_of({"--escape=maybe"}),
            "--escape: expected 1 | 0 (true | false, on | off, yes | no), found 'maybe'");
  EXPECT_TRUE(parse({"--no-escape=0"}).flag("escape"));
}

TEST(Options, AHiddenOptionIsStillTaken) {
  EXPECT_EQ(parse({"--threads-batch", "3"}).integer("threads-batch"), 3);
  EXPECT_EQ(error_of({"--thread-batch", "3"}),
            "unknown option --thread-batch; did you mean --threads-batch?");
}

TEST(Options, AValueOfAnotherProgramIsTakenAsTheOneHere) {
  ToolSpec tool = sample_tool();
  tool.options.push_back(
      {.name = "values", .kind = OptionKind::text, .synonyms = {{"q8_0", "int8"}}});
  const auto parsed = [&](const std::vector<std::string>& words, const char* variable) {
    return parse_options(tool, words, [&](const std::string& name) {
      return name == "LEQ_ARG_VALUES" && variable != nullptr ? std::optional<std::string>(variable)
                                                             : std::nullopt;
    });
  };
  const Options typed = parsed({"--values", "q8_0"}, nullptr);
  EXPECT_EQ(typed.text("values"), "int8");
  EXPECT_EQ(typed.notes(), std::vector<std::string>{"--values q8_0: taken as int8"});
  EXPECT_EQ(parsed({}, "q8_0").text("values"), "int8");
  EXPECT_EQ(parsed({"--values", "f16"}, "q8_0").text("values"), "f16");
  EXPECT_TRUE(parsed({"--values", "f16"}, "q8_0").notes().empty());
}

TEST(Options, WordsBehindTwoDashesAreArguments) {
  EXPECT_EQ(parse({"--", "-m"}).positionals(), std::vector<std::string>{"-m"});
  EXPECT_EQ(parse({"-"}).positionals(), std::vector<std::string>{"-"});
}

TEST(Options, HelpNamesEveryWordInNarrowLines) {
  const ToolSpec tool = sample_tool();
  const std::string help = help_text(tool);
  for (const auto& option : tool.options) {
    if (option.hidden) {
      EXPECT_EQ(help.find("--" + option.name), std::string::npos) << option.name;
      continue;
    }
    EXPECT_NE(help.find("--" + (option.fallback == "true" ? "no-" + option.name : option.name)),
              std::string::npos)
        << option.name;
  }
  for (const auto* word : {"-ctk, --cache-type-k T", "-no-cnv", "--no-mmap", "(default 0.8)",
                           "text | json", "-h, --help", "--version", "LEQ_ARG_"}) {
    EXPECT_NE(help.find(word), std::string::npos) << word;
  }
  std::size_t begin = 0;
  while (begin < help.size()) {
    const std::size_t end = std::min(help.find('\n', begin), help.size());
    EXPECT_LE(end - begin, 80u) << help.substr(begin, end - begin);
    begin = end + 1;
  }
}

// Runs a tool with the words; the result is its status, stdout and stderr.
struct Outcome {
  int status = 0;
  std::string out, err;
};
Outcome run(std::vector<const char*> words, const std::function<int(const Options&)>& body) {
  words.insert(words.begin(), "leq-sample");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.status = run_tool(sample_tool(), static_cast<int>(words.size()), words.data(), body);
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(RunTool, AnswersHelpAndVersionWithoutAModel) {
  const auto never = [](const Options&) -> int { throw Error("ran"); };
  EXPECT_EQ(run({"--version"}, never).out, "leq-sample 0.1.0\n");
  EXPECT_EQ(run({"--version"}, never).status, 0);
  const Outcome help = run({"--temp", "x", "--help"}, never);
  EXPECT_EQ(help.status, 0);
  EXPECT_EQ(help.out, help_text(sample_tool()));
}

TEST(RunTool, ErrorsAreOneLineAndStatusOne) {
  const Outcome failed = run({"-m", "x"}, [](const Options&) -> int { throw Error("no\nluck"); });
  EXPECT_EQ(failed.status, 1);
  EXPECT_EQ(failed.err, "leq-sample: error: no\\x0aluck\n");
  EXPECT_EQ(failed.out, "");
  const Outcome usage = run({"-m"}, [](const Options&) { return 0; });
  EXPECT_EQ(usage.status, 1);
  EXPECT_EQ(usage.err, "leq-sample: error: -m: a value (FILE) must follow\n");
}

TEST(RunTool, ReturnsTheBodysStatus) {
  EXPECT_EQ(
      run({"-m", "x"}, [](const Options& options) { return options.text("model") == "x" ? 7 : 8; })
          .status,
      7);
}

}  // namespace
}  // namespace leq
