// The entry point of every tool: immediate answers, uniform errors, silent exit on closed pipes.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>

#include "base/error.h"
#include "base/mapping_watch.h"
#include "base/text.h"
#include "base/version.h"
#include "runtime/runtime.h"
#include "tools/common/help.h"
#include "tools/common/options.h"
#include "tools/common/setting_flags.h"

namespace leq {
namespace {

// A file that is opened later would take the number of a closed standard stream and get its text.
// Writing to a closed standard output, and reading from a closed input, still fails.
void occupy_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    // Takes the lowest free number, which is this one.
    if (::open("/dev/null", stream == STDOUT_FILENO ? O_RDONLY : O_WRONLY) < 0) return;
  }
}

// --help, --version and similar options are answered even if other options are missing or invalid.
std::optional<std::string> answer_of(const ToolSpec& tool, std::span<const std::string> words) {
  const std::vector<std::string> shells = completion_shells();
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const std::string& word = words[i];
    if (word == "-h" || word == "--help") return help_text(tool);
    if (word == "--version") return tool.name + ' ' + kVersion + '\n';
    if (word == "--man") return manual_page(tool);
    for (const std::string& shell : shells) {
      const bool follows = word == "--completion" && i + 1 < words.size() && words[i + 1] == shell;
      if (follows || word == "--completion=" + shell) return completion_script(tool, shell);
    }
    for (const Answer& answer : tool.answers) {
      if (word == "--" + answer.name) return answer.text();
    }
  }
  return std::nullopt;
}

std::vector<std::string> variable_names() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

int run_checked(const ToolSpec& tool, std::span<const std::string> words,
                const std::function<int(const Options&)>& body, KnownVariables known) {
  if (const auto answer = answer_of(tool, words)) {
    std::cout << *answer;
    return 0;
  }
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
  ToolSpec whole = tool;
  whole.options = all_options(tool);
  const Options options = parse_options(whole, words, environment);
  // With --quiet, std::cerr has no buffer until the tool ends; an error is reported after that.
  const std::unique_ptr<std::streambuf, void (*)(std::streambuf*)> before(
      options.flag("quiet") ? std::cerr.rdbuf(nullptr) : nullptr,
      [](std::streambuf* buffer) { std::cerr.rdbuf(buffer); });
  std::vector<std::string> notes = misspelt_variables(tool, variable_names(), known);
  notes.insert(notes.end(), options.notes().begin(), options.notes().end());
  for (const std::string& line : notes) std::cerr << tool.name << ": " << line << '\n';
  return body(options);
}

int report(const ToolSpec& tool, const std::string& message) {
  std::cout.flush();
  std::cerr << tool.name << ": error: " << printable(message, std::string::npos) << '\n';
  return 1;
}

// This function allocates no memory, because memory has run out.
int report_no_memory(const ToolSpec& tool) {
  std::fflush(stdout);
  std::fprintf(stderr,
               "%s: error: out of memory; close other programs, raise `ulimit -v`, or try a "
               "smaller model, context or batch\n",
               tool.name.c_str());
  return 1;
}

// Returns the system's message about a path, without the text that the standard library adds.
std::string text_of(const std::filesystem::filesystem_error& error) {
  return error.path1().string() + ": " + error.code().message();
}

}  // namespace

int run_tool(const ToolSpec& tool, int argc, const char* const* argv,
             const std::function<int(const Options&)>& body, KnownVariables known) {
  occupy_closed_streams();
  std::signal(SIGPIPE, SIG_DFL);  // a closed pipe ends the tool without a message
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding the file size limit is an error of write()
  watch_mappings(tool.name);
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  try {
    const int status = run_checked(tool, words, body, known);
    std::cout.flush();
    require(std::cout.good() && std::ferror(stdout) == 0,
            "stdout: cannot write all of the output (is the disk full?)");
    return status;
  } catch (const FollowerDone&) {
    return 0;
  } catch (const std::bad_alloc&) {
    return report_no_memory(tool);
  } catch (const std::length_error&) {  // a size beyond any memory
    return report_no_memory(tool);
  } catch (const Error& error) {
    return report(tool, with_flags(error));
  } catch (const std::filesystem::filesystem_error& error) {
    return report(tool, text_of(error));
  } catch (const std::exception& error) {
    return report(tool, error.what());
  }
}

int run_tool(const Tool& tool, int argc, const char* const* argv, KnownVariables known) noexcept {
  try {
    return run_tool(tool.spec(), argc, argv, tool.body, known);
  } catch (const std::exception&) {  // run_tool reports all other exceptions
    std::fprintf(stderr, "%s: error: out of memory\n", tool.name);
    return 1;
  }
}

}  // namespace leq
