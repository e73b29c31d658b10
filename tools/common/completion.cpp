#include "tools/common/completion.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "tools/common/option_help.h"
#include "tools/common/option_words.h"

namespace leq {
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
  std::vector<Option> shown;
  for (const OptionGroup& group : shown_groups(tool)) {
    shown.insert(shown.end(), group.options.begin(), group.options.end());
  }
  return shown;
}

// Single-quotes a text for a shell; `quote` replaces apostrophes in it.
std::string quoted(std::string_view text, const char* quote) {
  return "'" + replace_all(std::string(text), "'", quote) + "'";
}

std::string function_name(const ToolSpec& tool) { return "_" + replace_all(tool.name, "-", "_"); }

std::string bash_script(const ToolSpec& tool) {
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
  return "# bash completion for " + tool.name + "\n" + name +
         "() {\n"
         "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
         "  COMPREPLY=()\n"
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
         "  else\n"
         "    compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
         "  fi\n"
         "}\n"
         "complete -F " +
         name + " " + tool.name + "\n";
}

std::string zsh_script(const ToolSpec& tool) {
  const auto escaped = [](std::string text) {
    for (const char* letter : {"\\", "[", "]", ":"}) {
      text = replace_all(text, letter, std::string("\\") + letter);
    }
    return text;
  };
  std::string out = "#compdef " + tool.name + "\n_arguments \\\n";
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

std::string fish_script(const ToolSpec& tool) {
  std::string out = "# fish completion for " + tool.name + "\n";
  if (tool.max_positionals == 0) out += "complete -c " + tool.name + " -f\n";
  for (const Option& option : shown_options(tool)) {
    out += "complete -c " + tool.name;
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
