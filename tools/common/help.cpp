#include "tools/common/help.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/error.h"
#include "base/text.h"
#include "base/version.h"

namespace leq {
namespace {

constexpr std::size_t kHelpColumns = 80;
constexpr std::size_t kHelpIndent = 32;  // column of the explanations
constexpr const char* kOtherGroup = "Other";
constexpr std::string_view kVariablesText =
    "Every option can also be set in the environment: LEQ_ARG_ and its long name, such as "
    "LEQ_ARG_THREADS=4. A flag wins.";

// The words to show: all spellings, but for a flag only those that change its default.
std::vector<std::string> shown_words(const Option& option) {
  if (option.fallback == "true") return negated_words(option);
  std::vector<std::string> words = option_words(option);
  if (option.fallback != "auto") return words;
  for (auto& word : negated_words(option)) words.push_back(std::move(word));
  return words;
}

// The help text, including choices and default.
std::string explanation(const Option& option) {
  std::string out = option.help;
  if (option.choices.size() > 1) {
    out += ": " + join(option.choices, " | ");
  }
  const bool tell = option.kind != OptionKind::flag && !option.fallback.empty();
  return tell ? out + " (default " + option.fallback + ")" : out;
}

struct OptionGroup {
  std::string name;
  std::vector<Option> options;
};
// The visible options by group, in the order of the groups' first appearance.
std::vector<OptionGroup> shown_groups(const ToolSpec& tool) {
  std::vector<OptionGroup> groups;
  for (const Option& option : all_options(tool)) {
    if (option.hidden) continue;
    auto group = std::ranges::find(groups, option.group, &OptionGroup::name);
    if (group == groups.end()) group = groups.insert(groups.end(), {option.group, {}});
    group->options.push_back(option);
  }
  std::ranges::stable_sort(groups, {}, [](const OptionGroup& group) {
    return group.name == kOtherGroup ? 2 : group.name == kTuningGroup ? 1 : 0;
  });
  return groups;
}

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

std::vector<Option> all_options(const ToolSpec& tool) {
  std::vector<Option> all = tool.options;
  for (const Answer& answer : tool.answers) {
    all.push_back({.name = answer.name, .help = answer.help, .group = kOtherGroup});
  }
  all.push_back({.name = "help",
                 .spellings = "-h",
                 .help = "print this help and exit",
                 .group = kOtherGroup});
  all.push_back({.name = "man", .help = "print the manual page and exit", .group = kOtherGroup});
  all.push_back({.name = "completion",
                 .kind = OptionKind::text,
                 .value_name = "SHELL",
                 .help = "print the completions for a shell and exit",
                 .group = kOtherGroup,
                 .choices = completion_shells()});
  all.push_back({.name = "quiet",
                 .spellings = "--log-disable",
                 .help = "print nothing to standard error but the error that ends the run",
                 .group = kOtherGroup});
  all.push_back({.name = "version", .help = "print the version and exit", .group = kOtherGroup});
  return all;
}

std::string help_text(const ToolSpec& tool) {
  std::string out = wrapped(tool.name + " " + kVersion + " - " + tool.summary, 0, 0) + "\nUsage:\n";
  constexpr std::size_t kUsageIndent = 4;  // of further lines; the first has 2 columns
  for (const auto& line : tool.usage) {
    out += wrapped(tool.name + " " + line, kUsageIndent, kUsageIndent - 2);
  }
  if (!tool.advice.empty()) out += "\n" + wrapped(tool.advice, 0, 0);
  for (const OptionGroup& group : shown_groups(tool)) {
    out += "\n" + (group.name.empty() ? "Options" : group.name) + ":\n";
    for (const Option& option : group.options) {
      const std::string left = left_column(option);
      out += left + wrapped(explanation(option), kHelpIndent, left.size());
    }
  }
  return out + "\n" + wrapped(kVariablesText, 0, 0);
}

// --- manual page

namespace {

// Escapes text for roff, so that a line that begins with a dot is not a request.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";  // a minus, so that options can be copied
    } else {
      out += c;
    }
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }

std::string option_entry(const Option& option) {
  std::string words;
  for (const std::string& word : shown_words(option)) {
    words += (words.empty() ? "" : ", ") + bold(word);
  }
  if (!option.value_name.empty()) words += " \\fI" + roff(option.value_name) + "\\fR";
  return ".TP\n" + words + "\n" + roff(explanation(option)) + "\n";
}

}  // namespace

std::string manual_page(const ToolSpec& tool) {
  std::string out =
      ".TH " + roff(ascii_upper(tool.name)) + " 1 \"\" \"leq " + kVersion + "\" \"leq\"\n";
  out += ".SH NAME\n" + roff(tool.name) + " \\- " + roff(tool.summary) + "\n";
  out += ".SH SYNOPSIS\n.nf\n";
  for (const std::string& line : tool.usage) out += bold(tool.name) + " " + roff(line) + "\n";
  out += ".fi\n";
  if (!tool.advice.empty()) out += ".SH DESCRIPTION\n" + roff(tool.advice) + "\n";
  out += ".SH OPTIONS\n";
  for (const OptionGroup& group : shown_groups(tool)) {
    if (!group.name.empty()) out += ".SS \"" + roff(group.name) + "\"\n";
    for (const Option& option : group.options) out += option_entry(option);
  }
  out += ".SH ENVIRONMENT\n" + roff(kVariablesText) + "\n";
  out += ".SH EXIT STATUS\n0, 1 after an error, which standard error tells in one line, " +
         (tool.statuses.empty() ? "" : roff(tool.statuses) + ", ") + "130 after Ctrl\\-C.\n";
  out += ".SH SEE ALSO\n";
  std::string others;
  for (const char* other : {"leq", "leq-bench", "leq-inspect", "leq-perplexity", "leq-quantize",
                            "leq-run", "leq-server"}) {
    if (tool.name == other) continue;
    others += (others.empty() ? "" : ",\n") + bold(other) + "(1)";
  }
  return out + others + "\n";
}

// --- completions

namespace {

enum class ValueKind { none, file, choice, other };

const std::vector<std::string>& offered_values(const Option& option) {
  return option.choices.empty() ? option.suggestions : option.choices;
}

ValueKind value_kind(const Option& option) {
  if (option.kind == OptionKind::flag) return ValueKind::none;
  if (!offered_values(option).empty()) return ValueKind::choice;
  const bool file = option.value_name.find("FILE") != std::string::npos ||
                    option.value_name.find("DIR") != std::string::npos;
  return file ? ValueKind::file : ValueKind::other;
}

std::vector<Option> shown_options(const ToolSpec& tool) {
  std::vector<Option> shown = all_options(tool);
  std::erase_if(shown, [](const Option& option) { return option.hidden; });
  return shown;
}

// Single-quotes a text for a shell; `quote` replaces apostrophes in it.
std::string quoted(std::string_view text, const char* quote) {
  return "'" + replace_all(std::string(text), "'", quote) + "'";
}

std::string function_name(const ToolSpec& tool) {
  return "_" + replace_all(replace_all(tool.name, "-", "_"), " ", "_");
}

// The commands of a program: "run" of "leq run".
std::string command_words(const ToolSpec& tool) {
  std::string words;
  for (const ToolSpec& command : tool.commands) {
    words += (words.empty() ? "" : " ") + command.name.substr(tool.name.size() + 1);
  }
  return words;
}

std::string bash_function(const ToolSpec& tool) {
  std::string words, cases;
  for (const Option& option : shown_options(tool)) {
    const std::vector<std::string> shown = shown_words(option);
    words += (words.empty() ? "" : " ") + join(shown, " ");
    std::string action;
    switch (value_kind(option)) {
      case ValueKind::none:
        continue;
      case ValueKind::file:
        action = "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")";
        break;
      case ValueKind::choice:
        action = "mapfile -t COMPREPLY < <(compgen -W '" + join(offered_values(option), " ") +
                 "' -- \"$cur\")";
        break;
      case ValueKind::other:
        action = ":";
        break;
    }
    cases += "    " + join(option_words(option), "|") + ") " + action + "; return ;;\n";
  }
  const std::string name = function_name(tool);
  const std::string commands = command_words(tool);
  // Words after a command are completed by the command's function.
  const std::string dispatch =
      "  if ((COMP_CWORD > 1)); then\n"
      "    ! declare -F \"" +
      name + "_${COMP_WORDS[1]}\" > /dev/null || \"" + name +
      "_${COMP_WORDS[1]}\"\n"
      "    return\n"
      "  fi\n";
  const std::string plain =
      commands.empty() ? "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")"
                       : "mapfile -t COMPREPLY < <(compgen -W '" + commands + "' -- \"$cur\")";
  return name +
         "() {\n"
         "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
         "  COMPREPLY=()\n" +
         (commands.empty() ? "" : dispatch) +
         "  # --name=value is three words\n"
         "  if [[ $cur == = ]]; then cur=\n"
         "  elif [[ $prev == = ]]; then prev=\"${COMP_WORDS[COMP_CWORD-2]}\"; fi\n"
         "  case \"$prev\" in\n" +
         cases +
         "  esac\n"
         "  if [[ $cur == -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W '" +
         words +
         "' -- \"$cur\")\n"
         "  else\n    " +
         plain +
         "\n  fi\n"
         "}\n";
}

std::string bash_script(const ToolSpec& tool) {
  std::string out = "# bash completion for " + tool.name + "\n";
  for (const ToolSpec& command : tool.commands) out += bash_function(command);
  return out + bash_function(tool) + "complete -F " + function_name(tool) + " " + tool.name + "\n";
}

std::string zsh_arguments(const ToolSpec& tool) {
  const auto escaped = [](std::string text) {
    for (const char* letter : {"\\", "[", "]", ":"}) {
      text = replace_all(text, letter, std::string("\\") + letter);
    }
    return text;
  };
  std::string out = "_arguments \\\n";
  for (const Option& option : shown_options(tool)) {
    const std::vector<std::string> words = shown_words(option);
    std::string value;
    if (const ValueKind kind = value_kind(option); kind != ValueKind::none) {
      value = ":" + escaped(option.value_name) + ":";
      if (kind == ValueKind::file) value += "_files";
      if (kind == ValueKind::choice) value += "(" + join(offered_values(option), " ") + ")";
    }
    // A list option may be repeated; any other option excludes all of its spellings.
    const std::string before = option.kind == OptionKind::list ? "*" : "(" + join(words, " ") + ")";
    const std::string after = "[" + escaped(explanation(option)) + "]" + value;
    for (const std::string& word : words) {
      out += "  " + quoted(before + word + after, "'\\''") + " \\\n";
    }
  }
  return out + (tool.max_positionals > 0 ? "  '*:file:_files'\n" : "  && return 0\n");
}

std::string zsh_script(const ToolSpec& tool) {
  std::string out = "#compdef " + tool.name + "\n";
  if (tool.commands.empty()) return out + zsh_arguments(tool);
  out += "if ((CURRENT > 2)); then\n  shift words\n  ((CURRENT--))\n  case $words[1] in\n";
  for (const ToolSpec& command : tool.commands) {
    out += command.name.substr(tool.name.size() + 1) + ")\n" + zsh_arguments(command) + ";;\n";
  }
  return out + "  esac\nelif [[ $words[2] != -* ]]; then\n  compadd " + command_words(tool) +
         "\nelse\n" + zsh_arguments(tool) + "fi\n";
}

// `begin`: "complete -c leq-run", or with a condition.
std::string fish_lines(const ToolSpec& tool, const std::string& begin) {
  std::string out;
  if (tool.max_positionals == 0) out += begin + " -f\n";
  for (const Option& option : shown_options(tool)) {
    out += begin;
    for (const std::string& word : shown_words(option)) {
      const bool is_long = word.starts_with("--");
      const std::string bare = word.substr(is_long ? 2 : 1);
      out += (is_long ? " -l " : bare.size() == 1 ? " -s " : " -o ") + bare;
    }
    const ValueKind kind = value_kind(option);
    if (kind == ValueKind::file) out += " -r -F";
    if (kind == ValueKind::other) out += " -x";
    if (kind == ValueKind::choice)
      out += " -x -a " + quoted(join(offered_values(option), " "), "\\'");
    const std::string text = replace_all(explanation(option), "\\", "\\\\");
    out += " -d " + quoted(text, "\\'") + "\n";
  }
  return out;
}

std::string fish_script(const ToolSpec& tool) {
  const std::string begin = "complete -c " + tool.name;
  std::string out = "# fish completion for " + tool.name + "\n" + fish_lines(tool, begin);
  for (const ToolSpec& command : tool.commands) {
    const std::string word = command.name.substr(tool.name.size() + 1);
    out += begin + " -n __fish_use_subcommand -f -a " + word + " -d " +
           quoted(command.summary, "\\'") + "\n" +
           fish_lines(command, begin + " -n '__fish_seen_subcommand_from " + word + "'");
  }
  return out;
}

struct Shell {
  std::string_view name;
  std::string (*script)(const ToolSpec&);
};
constexpr Shell kShells[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};

}  // namespace

std::vector<std::string> completion_shells() {
  std::vector<std::string> names;
  for (const Shell& shell : kShells) names.emplace_back(shell.name);
  return names;
}

std::string completion_script(const ToolSpec& tool, std::string_view shell) {
  const auto* found = std::ranges::find(kShells, shell, &Shell::name);
  ensure(found != std::end(kShells), "no completions for ", shell);
  return found->script(tool);
}

}  // namespace leq
