// Help, version and the outer shell of every tool: errors in one shape and quiet ends.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <new>

#include "base/error.h"
#include "base/text.h"
#include "base/version.h"
#include "tools/common/option_words.h"
#include "tools/common/options.h"
#include "tools/common/setting_flags.h"

namespace leq {
namespace {

constexpr std::size_t kHelpColumns = 80;
constexpr std::size_t kHelpIndent = 32;  // where the explanations begin

Option help_option() {
  return {.name = "help", .spellings = "-h", .help = "print this help and exit", .group = "Other"};
}
Option version_option() {
  return {.name = "version", .help = "print the version and exit", .group = "Other"};
}

// "-c, --ctx-size N" and for flags what is worth typing: the word that leaves the default.
std::string left_column(const Option& option) {
  std::vector<std::string> words = option_words(option);
  if (option.fallback == "true") {
    words = negated_words(option);
  } else if (option.fallback == "auto") {
    for (auto& word : negated_words(option)) words.push_back(std::move(word));
  }
  std::string out = words[0].starts_with("--") ? "      " : "  ";
  out += join(words);
  if (!option.value_name.empty()) out += " " + option.value_name;
  return out;
}

std::string explanation(const Option& option) {
  std::string out = option.help;
  if (!option.choices.empty()) {
    out += ": " + join(option.choices, " | ");
  }
  const bool tell = option.kind != OptionKind::flag && !option.fallback.empty();
  return tell ? out + " (default " + option.fallback + ")" : out;
}

// Words of `text` filled into lines that begin at `indent`; the first line already holds `used`.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t used) {
  std::string out;
  if (used > 0 && used + 2 > indent) {
    out += '\n';
    used = 0;
  }
  out += std::string(indent - used, ' ');
  std::size_t column = indent;
  for (const auto word : split(text, " ")) {
    if (column > indent && column + 1 + word.size() > kHelpColumns) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    }
    if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out + '\n';
}

ToolSpec with_common(ToolSpec tool) {
  for (const Answer& answer : tool.answers) {
    tool.options.push_back({.name = answer.name, .help = answer.help, .group = "Other"});
  }
  tool.options.push_back(help_option());
  tool.options.push_back(version_option());
  return tool;
}

int run_checked(const ToolSpec& tool, std::span<const std::string> words,
                const std::function<int(const Options&)>& body) {
  // Help, version and the like are answered even where other options are missing or wrong.
  for (const auto& word : words) {
    if (word == "--") break;
    if (word == "-h" || word == "--help") {
      std::cout << help_text(tool);
      return 0;
    }
    if (word == "--version") {
      std::cout << tool.name << ' ' << kVersion << '\n';
      return 0;
    }
    for (const Answer& answer : tool.answers) {
      if (word != "--" + answer.name) continue;
      std::cout << answer.text();
      return 0;
    }
  }
  const auto environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
  return body(parse_options(with_common(tool), words, environment));
}

int report(const ToolSpec& tool, std::string message) {
  std::ranges::replace(message, '\n', ' ');
  std::cout.flush();
  std::cerr << tool.name << ": error: " << message << '\n';
  return 1;
}

}  // namespace

std::string help_text(const ToolSpec& tool) {
  const ToolSpec whole = with_common(tool);
  std::string out = tool.name + " " + kVersion + " - " + tool.summary + "\n\nUsage:\n";
  for (const auto& line : tool.usage) out += "  " + tool.name + " " + line + "\n";
  std::vector<std::string> groups;
  for (const auto& option : whole.options) {
    if (option.hidden || std::ranges::find(groups, option.group) != groups.end()) continue;
    groups.push_back(option.group);
  }
  for (const auto& group : groups) {
    out += "\n" + group + ":\n";
    for (const auto& option : whole.options) {
      if (option.hidden || option.group != group) continue;
      const std::string left = left_column(option);
      out += left + wrapped(explanation(option), kHelpIndent, left.size());
    }
  }
  return out + "\n" +
         wrapped(
             "Every option can also be set in the environment: LEQ_ARG_ and its "
             "long name, such as LEQ_ARG_THREADS=4. A flag wins.",
             0, 0);
}

int run_tool(const ToolSpec& tool, int argc, const char* const* argv,
             const std::function<int(const Options&)>& body) {
  std::signal(SIGPIPE, SIG_DFL);  // a reader that goes away ends the tool without a word
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  try {
    const int status = run_checked(tool, words, body);
    std::cout.flush();
    require(std::cout.good(), "stdout: cannot write all of the output (is the disk full?)");
    return status;
  } catch (const std::bad_alloc&) {
    return report(tool, "out of memory");
  } catch (const Error& error) {
    return report(tool, with_flags(error));
  } catch (const std::exception& error) {
    return report(tool, error.what());
  }
}

int run_tool(const char* name, ToolSpec (*spec)(), int argc, const char* const* argv,
             int (*body)(const Options&)) noexcept {
  try {
    return run_tool(spec(), argc, argv, body);
  } catch (const std::exception&) {  // run_tool has told of all others
    std::fprintf(stderr, "%s: error: out of memory\n", name);
    return 1;
  }
}

}  // namespace leq
