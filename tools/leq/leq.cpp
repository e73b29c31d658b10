// leq: all tools in one program. `leq COMMAND ...` runs a command; called as leq-run, it is
// leq-run.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tools/common/mains.h"
#include "tools/common/options.h"
#include "tools/common/pull.h"
#include "tools/leq/commands.h"

namespace leq {
namespace {

struct Command {
  const char* name;
  const char* program;       // the name by which it is a tool of its own, or nullptr
  int (*main)(int, char**);  // nullptr: a program of the Python package
  const char* help;
};

int show_main(int argc, char** argv);

constexpr Command kCommands[] = {
    {"run", "leq-run", run_main, "run MODEL [PROMPT]      chat, or answer one question"},
    {"serve", "leq-server", server_main,
     "serve [MODEL...]        the APIs of OpenAI and Anthropic, and a chat page"},
    {"pull", nullptr, pull_main, "pull MODEL...           download models, or update them"},
    {"ls", nullptr, list_main, "ls                      list the models that are here"},
    {"rm", nullptr, remove_main, "rm MODEL...             remove models"},
    {"show", nullptr, show_main, "show MODEL              print what a model's file holds"},
    {"ps", nullptr, ps_main, "ps                      list the models that a server has loaded"},
    {"quantize", "leq-quantize", quantize_main, "quantize CHECKPOINT -o FILE"},
    {"perplexity", "leq-perplexity", perplexity_main, "perplexity MODEL -f FILE"},
    {"bench", "leq-bench", bench_main, "bench -m MODEL          measure speed"},
    {"inspect", "leq-inspect", inspect_main,
     "inspect FILE            contents, checksums, memory plan"},
    {"compare", "leq-compare", nullptr,
     "compare CHECKPOINT ...  compare methods (pip install leq[compare])"},
    {"export", "leq-export", nullptr,
     "export FILE ...         for other runtimes (pip install leq[export])"},
};

ToolSpec leq_spec() {
  ToolSpec spec;
  spec.name = "leq";
  spec.summary = "runs language models: downloads, quantizes, chats and serves";
  for (const Command& command : kCommands) spec.usage.emplace_back(command.help);
  spec.advice = std::string(kModelNames) +
                " `leq COMMAND --help` lists the options of a command; `leq run` is also leq-run, "
                "and so on. Short names: " +
                join(short_names()) + ".";
  spec.max_positionals = 1;
  return spec;
}

int explain(const Options& options) {
  std::vector<std::string> names;
  for (const Command& command : kCommands) names.emplace_back(command.name);
  require(!options.positionals().empty(), "expected a command: ", join(names, " | "),
          "; see leq --help");
  const std::string& word = options.positionals().front();
  const auto nearest = nearest_word(word, names);
  fail("no command '", printable(word), "'",
       nearest ? "; did you mean " + *nearest + "?" : "; see leq --help");
}

// Replaces this process by a program of the Python package.
int run_python_tool(const Command& command, int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  std::string program = command.program;
  words.front() = program.data();
  words.push_back(nullptr);
  ::execvp(command.program, words.data());
  std::fprintf(stderr, "leq: error: %s is not installed: pip install 'leq[%s]'\n", command.program,
               command.name);
  return 1;
}

// leq-inspect with a model's name in place of its file.
int show_main(int argc, char** argv) {
  std::vector<char*> words(argv, argv + argc);
  std::string file;
  std::error_code error;
  for (std::size_t i = 1; i < words.size() && file.empty(); ++i) {
    if (words[i][0] == '-' || std::filesystem::exists(words[i], error)) continue;
    if (const auto kept = find_kept(words[i])) {
      file = kept->path.string();
      words[i] = file.data();
    }
  }
  return inspect_main(argc, words.data());
}

int leq_main(int argc, char** argv) {
  const std::string program = std::filesystem::path(argc > 0 ? argv[0] : "leq").filename().string();
  const bool named = argc > 1 && program.find("leq-") == std::string::npos;
  for (const Command& command : kCommands) {
    if (command.main != nullptr && command.program != nullptr && program == command.program) {
      return command.main(argc, argv);
    }
    if (!named || std::string_view(argv[1]) != command.name) continue;
    return command.main != nullptr ? command.main(argc - 1, argv + 1)
                                   : run_python_tool(command, argc - 1, argv + 1);
  }
  return run_tool("leq", leq_spec, argc, argv, explain);
}

}  // namespace
}  // namespace leq

int main(int argc, char** argv) { return leq::leq_main(argc, argv); }
