#include "tools/common/options.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "tools/common/option_words.h"

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

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (const auto& part : parts) out += (out.empty() ? "" : std::string(separator)) + part;
  return out;
}

// Checks one value as typed; `where` is the word or variable that it came from.
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

std::string variable_name(std::string_view option_name) {
  std::string out = "LEQ_ARG_";
  for (const char c : option_name) {
    out += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return out;
}

}  // namespace

class OptionParser {
 public:
  OptionParser(const ToolSpec& tool, std::span<const std::string> words) : words_(words) {
    for (const auto& option : tool.options) {
      result_.values_[option.name].kind = option.kind;
      for (const auto& word : option_words(option)) table_.push_back({word, &option, false});
      for (const auto& word : negated_words(option)) table_.push_back({word, &option, true});
    }
  }

  Options parse(const ToolSpec& tool, const Environment& environment) {
    for (next_ = 0; next_ < words_.size();) take_word(tool);
    for (const auto& option : tool.options) {
      take_variable(option, environment);
      take_default(tool, option);
    }
    return std::move(result_);
  }

 private:
  struct Entry {
    std::string word;
    const Option* option;
    bool negated;
  };

  // The entry of a word as typed: without its "=value", and _ for - in long names.
  const Entry* find(std::string word) const {
    if (word.starts_with("--")) std::ranges::replace(word, '_', '-');
    const auto found = std::ranges::find(table_, word, &Entry::word);
    return found == table_.end() ? nullptr : &*found;
  }

  void take_word(const ToolSpec& tool) {
    const std::string& word = words_[next_++];
    if (word == "--") {
      while (next_ < words_.size()) take_positional(tool, words_[next_++]);
      return;
    }
    if (word.size() < 2 || word[0] != '-') return take_positional(tool, word);
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (const Entry* entry = find(name)) {
      std::optional<std::string> value;
      if (equals != std::string::npos) value = word.substr(equals + 1);
      return take_option(*entry, name, std::move(value));
    }
    // "-t8": a number right behind a letter.
    const Entry* letter = word[1] != '-' ? find(word.substr(0, 2)) : nullptr;
    if (letter != nullptr && parse_double(word.substr(2))) {
      return take_option(*letter, word.substr(0, 2), word.substr(2));
    }
    unknown(tool, name);
  }

  void take_positional(const ToolSpec& tool, const std::string& word) {
    require(result_.positionals_.size() < tool.max_positionals, "unexpected argument '",
            printable(word), "'; see ", tool.name, " --help");
    result_.positionals_.push_back(word);
  }

  void take_option(const Entry& entry, const std::string& word, std::optional<std::string> text) {
    const Option& option = *entry.option;
    Options::Value& value = result_.values_[option.name];
    value.given = true;
    if (option.kind == OptionKind::flag) {
      const bool on = !text || parse_switch(*text, word);
      value.texts = {on != entry.negated ? "1" : "0"};
      return;
    }
    if (!text) {
      require(next_ < words_.size(), word, ": a value (", option.value_name, ") must follow");
      text = words_[next_++];
      require(text->size() < 2 || find(*text) == nullptr, word, ": a value (", option.value_name,
              ") must follow, found the option ", *text, "; if it is meant, write ", word, "=",
              *text);
    }
    check_value(option, *text, word);
    if (option.kind != OptionKind::list) value.texts.clear();
    value.texts.push_back(*std::move(text));
  }

  [[noreturn]] void unknown(const ToolSpec& tool, const std::string& word) const {
    std::vector<std::string> known;
    for (const auto& entry : table_) known.push_back(entry.word);
    const auto nearest = nearest_word(word, known);
    fail("unknown option ", printable(word), nearest ? "; did you mean " + *nearest + "?" : "",
         nearest ? "" : "; see " + tool.name + " --help");
  }

  void take_variable(const Option& option, const Environment& environment) {
    Options::Value& value = result_.values_[option.name];
    if (value.given) return;
    const std::string variable = variable_name(option.name);
    const std::string opposite = variable_name("no-" + option.name);
    const bool is_flag = option.kind == OptionKind::flag;
    if (const auto text = environment(variable)) {
      if (!is_flag) check_value(option, *text, variable);
      value.texts = {is_flag ? (parse_switch(*text, variable) ? "1" : "0") : *text};
      value.given = true;
      value.from_environment = true;
    } else if (const auto negated = is_flag ? environment(opposite) : std::nullopt) {
      value.texts = {parse_switch(*negated, opposite) ? "0" : "1"};
      value.given = true;
      value.from_environment = true;
    }
  }

  void take_default(const ToolSpec& tool, const Option& option) {
    Options::Value& value = result_.values_[option.name];
    require(value.given || !option.required, "missing option ", join(option_words(option), ", "),
            " ", option.value_name, "; see ", tool.name, " --help");
    const bool is_flag = option.kind == OptionKind::flag;
    if (value.given || option.fallback.empty() || (is_flag && option.fallback == "auto")) return;
    value.texts = {is_flag ? (option.fallback == "true" ? "1" : "0") : option.fallback};
  }

  std::span<const std::string> words_;
  std::size_t next_ = 0;
  std::vector<Entry> table_;
  Options result_;
};

Options parse_options(const ToolSpec& tool, std::span<const std::string> words,
                      const Environment& environment) {
  return OptionParser(tool, words).parse(tool, environment);
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
