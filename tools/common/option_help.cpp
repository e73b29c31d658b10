#include "tools/common/option_help.h"

#include <algorithm>

#include "base/text.h"
#include "base/version.h"
#include "tools/common/completion.h"
#include "tools/common/option_words.h"

namespace leq {
namespace {

constexpr std::size_t kHelpColumns = 80;
constexpr std::size_t kHelpIndent = 32;  // column of the explanations

// Returns the option's words, such as "-c, --ctx-size N".
std::string left_column(const Option& option) {
  const std::vector<std::string> words = shown_words(option);
  std::string out = words[0].starts_with("--") ? "      " : "  ";
  out += join(words);
  if (!option.value_name.empty()) out += " " + option.value_name;
  return out;
}

// Wraps `text` into lines indented by `indent`; `used` columns of the first line are already used.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t used) {
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

}  // namespace

std::vector<std::string> shown_words(const Option& option) {
  if (option.fallback == "true") return negated_words(option);
  std::vector<std::string> words = option_words(option);
  if (option.fallback != "auto") return words;
  for (auto& word : negated_words(option)) words.push_back(std::move(word));
  return words;
}

std::string explanation(const Option& option) {
  std::string out = option.help;
  if (!option.choices.empty()) {
    out += ": " + join(option.choices, " | ");
  }
  const bool tell = option.kind != OptionKind::flag && !option.fallback.empty();
  return tell ? out + " (default " + option.fallback + ")" : out;
}

std::vector<Option> all_options(const ToolSpec& tool) {
  std::vector<Option> all = tool.options;
  const std::string group = "Other";
  for (const Answer& answer : tool.answers) {
    all.push_back({.name = answer.name, .help = answer.help, .group = group});
  }
  all.push_back(
      {.name = "help", .spellings = "-h", .help = "print this help and exit", .group = group});
  all.push_back({.name = "man", .help = "print the manual page and exit", .group = group});
  all.push_back({.name = "completion",
                 .kind = OptionKind::text,
                 .value_name = "SHELL",
                 .help = "print the completions for a shell and exit",
                 .group = group,
                 .choices = completion_shells()});
  all.push_back({.name = "version", .help = "print the version and exit", .group = group});
  return all;
}

std::vector<OptionGroup> shown_groups(const ToolSpec& tool) {
  std::vector<OptionGroup> groups;
  for (const Option& option : all_options(tool)) {
    if (option.hidden) continue;
    auto group = std::ranges::find(groups, option.group, &OptionGroup::name);
    if (group == groups.end()) group = groups.insert(groups.end(), {option.group, {}});
    group->options.push_back(option);
  }
  return groups;
}

std::string help_text(const ToolSpec& tool) {
  std::string out = tool.name + " " + kVersion + " - " + tool.summary + "\n\nUsage:\n";
  for (const auto& line : tool.usage) out += "  " + tool.name + " " + line + "\n";
  for (const OptionGroup& group : shown_groups(tool)) {
    out += "\n" + group.name + ":\n";
    for (const Option& option : group.options) {
      const std::string left = left_column(option);
      out += left + wrapped(explanation(option), kHelpIndent, left.size());
    }
  }
  return out + "\n" + wrapped(kVariablesText, 0, 0);
}

}  // namespace leq
