#include "tools/common/options.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "tools/common/option_words.h"
#include "tools/common/parse_words.h"

namespace leq {
namespace {

std::string number_text(double value) { return fixed(value, value == std::int64_t(value) ? 0 : 6); }

std::string range_text(const Option& option) {
  const bool low = option.minimum > -std::numeric_limits<double>::infinity();
  const bool high = option.maximum < std::numeric_limits<double>::infinity();
  if (low && high) return " in " + number_text(option.minimum) + ".." + number_text(option.maximum);
  if (low) return " of at least " + number_text(option.minimum);
  if (high) return " of at most " + number_text(option.maximum);
  return "";
}

void check_number(const Option& option, std::string_view text, const std::string& where) {
  const bool whole = option.kind != OptionKind::real;
  std::optional<double> number;
  if (!whole) {
    number = parse_double(text);
  } else if (const auto integer = parse_int(text)) {
    number = static_cast<double>(*integer);
  }
  const bool good = number && *number >= option.minimum && *number <= option.maximum;
  require(good, where, ": expected a ", whole ? "whole number" : "number", range_text(option),
          ", found '", printable(text), "'");
}

// Checks one value; `where` is the word or the variable that specified it.
void check_value(const Option& option, const std::string& text, const std::string& where) {
  switch (option.kind) {
    case OptionKind::integer:
    case OptionKind::real:
      return check_number(option, text, where);
    case OptionKind::integers:
      for (const auto part : split(text, ",")) check_number(option, trim(part), where);
      return;
    case OptionKind::text:
    case OptionKind::list:
      require(!text.empty() || !option.value_name.starts_with("FILE"), where,
              ": expected the name of a file, found nothing");
      require(
          option.choices.empty() || std::ranges::find(option.choices, text) != option.choices.end(),
          where, ": expected ", join(option.choices, " | "), ", found '", printable(text), "'");
      return;
    case OptionKind::flag:
      return;
  }
}

bool parse_switch(const std::string& text, const std::string& where) {
  for (const auto* yes : {"1", "true", "on", "yes"}) {
    if (text == yes) return true;
  }
  for (const auto* no : {"0", "false", "off", "no"}) {
    if (text == no) return false;
  }
  fail(where, ": expected 1 | 0 (true | false, on | off, yes | no), found '", printable(text), "'");
}

constexpr std::string_view kVariablePrefix = "LEQ_ARG_";

std::string variable_name(std::string_view long_word) {
  std::string out(kVariablePrefix);
  for (const char c : long_word.substr(2)) {
    out += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return out;
}

// Returns the environment variables that correspond to the long names among these words.
std::vector<std::string> variables_of(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words) {
    if (word.starts_with("--")) names.push_back(variable_name(word));
  }
  return names;
}

std::string bare_variable(std::string_view name) {
  return std::string(name.substr(kVariablePrefix.size()));
}
std::vector<std::string> bare_variables(const std::vector<std::string>& names) {
  std::vector<std::string> bare;
  for (const std::string& name : names) bare.push_back(bare_variable(name));
  return bare;
}

// Variables of one tool that resemble misspelled variables of another; a test checks this list.
constexpr std::string_view kOfOtherTools[] = {
    "LEQ_ARG_AGAIN",      "LEQ_ARG_AGAINST",  "LEQ_ARG_TIME",         "LEQ_ARG_TARGET",
    "LEQ_ARG_METHOD",     "LEQ_ARG_METHODS",  "LEQ_ARG_JSON",         "LEQ_ARG_LOAD",
    "LEQ_ARG_N_PARALLEL", "LEQ_ARG_PARALLEL", "LEQ_ARG_PRETOKENIZER", "LEQ_ARG_PROMPT",
    "LEQ_ARG_N_PROMPT",   "LEQ_ARG_RECEIPT",  "LEQ_ARG_RECIPE",       "LEQ_ARG_WRITE_TOKENIZER"};

// An environment variable that is set, with its value.
struct SetVariable {
  std::string name, text;
};
std::optional<SetVariable> first_set(const std::vector<std::string>& names,
                                     const Environment& environment) {
  for (const std::string& name : names) {
    if (auto text = environment(name)) return SetVariable{name, std::move(*text)};
  }
  return std::nullopt;
}

}  // namespace

// Fills Options from words, environment and defaults, and checks each value.
class OptionReader {
 public:
  Options read(const ToolSpec& tool, std::span<const std::string> words,
               const Environment& environment) {
    std::map<std::string, const Option*> table;
    for (const Option& option : tool.options) {
      table[option.name] = &option;
      result_.values_[option.name].kind = option.kind;
    }
    ParsedWords parsed = parse_words(tool, words);
    for (const GivenOption& given : parsed.options) take_given(*table.at(given.name), given);
    result_.positionals_ = std::move(parsed.positionals);
    result_.notes_ = std::move(parsed.notes);
    for (const Option& option : tool.options) {
      take_variable(option, environment);
      take_default(tool, option);
    }
    return std::move(result_);
  }

 private:
  void take_given(const Option& option, const GivenOption& given) {
    Options::Value& value = result_.values_[option.name];
    value.given = true;
    if (option.kind == OptionKind::flag) {
      value.texts = {parse_switch(given.value, given.word) != given.negated ? "1" : "0"};
      return;
    }
    check_value(option, given.value, given.word);
    if (option.kind != OptionKind::list) value.texts.clear();
    value.texts.push_back(given.value);
  }

  void take_variable(const Option& option, const Environment& environment) {
    Options::Value& value = result_.values_[option.name];
    if (value.given) return;
    const bool is_flag = option.kind == OptionKind::flag;
    if (const auto set = first_set(variables_of(option_words(option)), environment)) {
      if (!is_flag) check_value(option, set->text, set->name);
      value.texts = {is_flag ? (parse_switch(set->text, set->name) ? "1" : "0") : set->text};
    } else if (const auto no = first_set(variables_of(negated_words(option)), environment)) {
      value.texts = {parse_switch(no->text, no->name) ? "0" : "1"};
    } else {
      return;
    }
    value.given = true;
    value.from_environment = true;
  }

  void take_default(const ToolSpec& tool, const Option& option) {
    Options::Value& value = result_.values_[option.name];
    require(value.given || !option.required, "missing option ", join(option_words(option), ", "),
            " ", option.value_name, "; see ", tool.name, " --help");
    const bool is_flag = option.kind == OptionKind::flag;
    if (value.given || option.fallback.empty() || (is_flag && option.fallback == "auto")) return;
    value.texts = {is_flag ? (option.fallback == "true" ? "1" : "0") : option.fallback};
  }

  Options result_;
};

Options parse_options(const ToolSpec& tool, std::span<const std::string> words,
                      const Environment& environment) {
  return OptionReader().read(tool, words, environment);
}

std::vector<std::string> misspelt_variables(const ToolSpec& tool,
                                            std::span<const std::string> variables) {
  const auto variables_of_all = [](std::span<const Option> options) {
    std::vector<std::string> names;
    for (const Option& option : options) {
      for (auto& name : variables_of(option_words(option))) names.push_back(std::move(name));
      for (auto& name : variables_of(negated_words(option))) names.push_back(std::move(name));
    }
    return names;
  };
  const std::vector<std::string> known = variables_of_all(all_options(tool));
  const std::vector<std::string> meant = variables_of_all(tool.options);
  std::vector<std::string> lines;
  for (const std::string& variable : variables) {
    if (!variable.starts_with(kVariablePrefix)) continue;
    if (std::ranges::find(known, variable) != known.end()) continue;
    if (std::ranges::find(kOfOtherTools, variable) != std::end(kOfOtherTools)) continue;
    // The common prefix is not compared, because it would make all names similar.
    const auto nearest = nearest_word(bare_variable(variable), bare_variables(meant));
    if (!nearest) continue;  // probably for another tool
    lines.push_back(printable(variable) + " is no variable of " + tool.name + ": did you mean " +
                    std::string(kVariablePrefix) + *nearest + "?");
  }
  return lines;
}

bool Options::given(std::string_view name) const {
  const auto found = values_.find(name);
  require(found != values_.end(), "no option is declared as '", name, "'");
  return found->second.given;
}

bool Options::from_environment(std::string_view name) const {
  const auto found = values_.find(name);
  require(found != values_.end(), "no option is declared as '", name, "'");
  return found->second.from_environment;
}

bool Options::has(std::string_view name) const {
  const auto found = values_.find(name);
  require(found != values_.end(), "no option is declared as '", name, "'");
  return !found->second.texts.empty();
}

const Options::Value& Options::value(std::string_view name, OptionKind kind) const {
  const auto found = values_.find(name);
  require(found != values_.end() && found->second.kind == kind,
          "no option of this kind is "
          "declared as '",
          name, "'");
  require(kind == OptionKind::list || kind == OptionKind::flag || !found->second.texts.empty(),
          "option --", name, " has no value");
  return found->second;
}

bool Options::flag(std::string_view name) const {
  const Value& found = value(name, OptionKind::flag);
  return !found.texts.empty() && found.texts[0] == "1";
}

void Options::replace_texts(std::string_view name,
                            const std::function<std::string(const std::string&)>& other) {
  const auto found = values_.find(name);
  ensure(found != values_.end(), "no option is declared as '", name, "'");
  for (std::string& text : found->second.texts) text = other(text);
}

void Options::set_text(std::string_view name, const std::string& text) {
  const auto found = values_.find(name);
  ensure(found != values_.end(), "no option is declared as '", name, "'");
  found->second.given = true;
  found->second.texts = {text};
}

std::int64_t Options::integer(std::string_view name) const {
  return *parse_int(value(name, OptionKind::integer).texts[0]);
}

double Options::real(std::string_view name) const {
  return *parse_double(value(name, OptionKind::real).texts[0]);
}

const std::string& Options::text(std::string_view name) const {
  return value(name, OptionKind::text).texts[0];
}

const std::vector<std::string>& Options::list(std::string_view name) const {
  return value(name, OptionKind::list).texts;
}

std::vector<std::int64_t> Options::integers(std::string_view name) const {
  std::vector<std::int64_t> out;
  for (const auto part : split(value(name, OptionKind::integers).texts[0], ",")) {
    out.push_back(*parse_int(trim(part)));
  }
  return out;
}

}  // namespace leq
