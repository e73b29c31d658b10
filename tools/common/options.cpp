#include "tools/common/options.h"

#include <algorithm>
#include <cxxopts.hpp>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "tools/common/help.h"
#include "tools/common/llama_flags.h"

namespace leq {
namespace {

std::vector<std::string> with_long_name(const std::string& spellings, const std::string& name) {
  std::vector<std::string> words;
  for (const auto word : split(spellings, " ")) {
    if (!word.empty()) words.emplace_back(word);
  }
  const auto first_long =
      std::ranges::find_if(words, [](const std::string& word) { return word.starts_with("--"); });
  words.insert(first_long, "--" + name);
  return words;
}

// Edit distance with insertions, deletions, replacements and swaps of adjacent characters (Damerau
// 1964, restricted form), in time quadratic in the lengths.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  std::iota(cost[0].begin(), cost[0].end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    cost[i][0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::vector<std::string> option_words(const Option& option) {
  return with_long_name(option.spellings, option.name);
}

std::vector<std::string> negated_words(const Option& option) {
  if (option.kind != OptionKind::flag) return {};
  return with_long_name(option.negations, "no-" + option.name);
}

std::optional<std::string> nearest_word(const std::string& word,
                                        std::span<const std::string> known) {
  constexpr std::size_t kLongestWord = 64;  // because the distance is quadratic
  if (word.size() > kLongestWord) return std::nullopt;
  const auto bare = [](const std::string& text) {
    return text.substr(std::min(text.find_first_not_of('-'), text.size()));
  };
  const std::string wanted = bare(word);
  std::optional<std::string> best;
  // At equal distance the longer name is preferred, since typos more often omit letters than add.
  std::pair<std::size_t, std::ptrdiff_t> least;
  for (const auto& candidate : known) {
    const std::string name = bare(candidate);
    const bool begins = wanted.size() >= 3 && name.starts_with(wanted);
    const std::size_t cost = begins ? 1 : 2 * edit_distance(wanted, name);
    const std::size_t allowed = 2 * std::max<std::size_t>(1, wanted.size() / 3);
    // One-letter options are similar to every word, so only wrong dashes are corrected for them.
    if ((name.size() == 1 && cost != 0) || cost > allowed) continue;
    const std::pair reading(cost, begins ? 0 : -std::ssize(name));
    if (!best || reading < least) {
      best = candidate;
      least = reading;
    }
  }
  return best;
}

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

// Returns the environment variables that correspond to the long names among these words.
std::vector<std::string> variables_of(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words) {
    if (!word.starts_with("--")) continue;
    std::string& name = names.emplace_back(kVariablePrefix);
    for (const char c : word.substr(2)) {
      name += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    }
  }
  return names;
}

// One wrong, missing, additional or swapped letter.
bool is_slip(const std::string& a, const std::string& b) {
  const auto [shorter, longer] = std::minmax({a.size(), b.size()});
  return longer - shorter <= 1 && edit_distance(a, b) == 1;
}

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

// Fills Options from words, environment and defaults, and checks each value. cxxopts parses the
// words, in the one form --name=value; others are rewritten to it first: one dash before several
// letters (-ctk), numbers attached to a letter (-t8), _ instead of -, and words that negate a flag.
class OptionReader {
 public:
  OptionReader(const ToolSpec& tool, std::span<const std::string> words,
               const Environment& environment)
      : tool_(tool), words_(words), environment_(environment) {
    result_.tool_ = tool.name;
    for (const Option& option : tool.options) {
      result_.values_[option.name].kind = option.kind;
      for (const auto& word : option_words(option)) table_.push_back({word, &option, false});
      for (const auto& word : negated_words(option)) table_.push_back({word, &option, true});
    }
  }

  Options read() {
    while (next_ < words_.size()) take(words_[next_++]);
    parse();
    for (const Option& option : tool_.options) {
      take_variable(option);
      take_default(option);
    }
    return std::move(result_);
  }

 private:
  struct Entry {
    std::string word;
    const Option* option;
    bool negated;  // "--no-name"
  };
  struct Given {
    const Entry* entry;
    std::string word;  // as typed: "-c"
  };

  // Returns the entry of a word without its "=value".
  const Entry* find(std::string word) const {
    if (word.starts_with("--")) std::ranges::replace(word, '_', '-');
    const auto found = std::ranges::find(table_, word, &Entry::word);
    return found == table_.end() ? nullptr : &*found;
  }

  void take(const std::string& word) {
    if (word == "--") {
      while (next_ < words_.size()) arguments_.push_back(words_[next_++]);
    } else if (word.size() < 2 || word[0] != '-') {
      arguments_.push_back(word);
    } else {
      take_option(word);
    }
  }

  void take_option(const std::string& word) {
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const Entry* letter = word[1] != '-' ? find(word.substr(0, 2)) : nullptr;
    if (const Entry* entry = find(name)) {
      add(*entry, name,
          equals == std::string::npos ? following(*entry, name) : word.substr(equals + 1));
    } else if (letter != nullptr && parse_double(word.substr(2))) {  // "-t8"
      add(*letter, word.substr(0, 2), word.substr(2));
    } else if (const ForeignOption* foreign = find_foreign(name)) {
      take_foreign(*foreign, name, equals != std::string::npos);
    } else {
      unknown(name);
    }
  }

  const ForeignOption* find_foreign(std::string word) const {
    if (word.starts_with("--")) std::ranges::replace(word, '_', '-');
    for (const auto& table : {tool_.foreign, other_programs_flags()}) {
      for (const ForeignOption& foreign : table) {
        const auto words = split(foreign.words, " ");
        if (std::ranges::find(words, word) != words.end()) return &foreign;
      }
    }
    return nullptr;
  }

  void take_foreign(const ForeignOption& foreign, const std::string& word, bool has_value) {
    require(foreign.use != ForeignUse::refused, word, ": ", foreign.text);
    if (foreign.use == ForeignUse::noted) {
      result_.notes_.push_back(word + ": " + std::string(foreign.text));
    }
    if (has_value) return;
    for (int i = 0; i < foreign.values; ++i) {
      require(next_ < words_.size(), word, ": a value must follow");
      ++next_;
    }
    if (foreign.value_may_follow) take_next({"on", "off", "auto", "1", "0", "true", "false"});
  }

  // Consumes the next word if it is one of these.
  std::string_view take_next(std::initializer_list<std::string_view> expected) {
    if (next_ == words_.size()) return "";
    const auto* found = std::ranges::find(expected, words_[next_]);
    if (found == expected.end()) return "";
    ++next_;
    return *found;
  }

  void add(const Entry& entry, const std::string& word, const std::string& value) {
    given_.push_back({&entry, word});
    rewritten_.push_back("--" + entry.option->name + "=" + value);
  }

  // Returns the value after a word that has no "=value".
  std::string following(const Entry& entry, const std::string& word) {
    if (entry.option->kind == OptionKind::flag) {
      const bool off = entry.option->value_may_follow && take_next({"on", "off", "auto"}) == "off";
      return off ? "0" : "1";
    }
    const std::string& what = entry.option->value_name;
    require(next_ < words_.size(), word, ": a value (", what, ") must follow");
    const std::string& value = words_[next_++];
    require(value.size() < 2 || find(value) == nullptr, word, ": a value (", what,
            ") must follow, found the option ", value, "; if it is meant, write ", word, "=",
            value);
    return value;
  }

  [[noreturn]] void unknown(const std::string& word) const {
    std::vector<std::string> known;
    for (const auto& entry : table_) known.push_back(entry.word);
    const auto nearest = nearest_word(word, known);
    fail("unknown option ", printable(word), nearest ? "; did you mean " + *nearest + "?" : "",
         nearest ? "" : "; see " + tool_.name + " --help");
  }

  // Parses the rewritten words and takes their values in order.
  void parse() {
    cxxopts::Options parser(tool_.name);
    for (const Option& option : tool_.options) {
      // All options are declared as texts, as cxxopts splits lists at commas and accepts
      // hexadecimal.
      parser.add_options()(option.name, option.help, cxxopts::value<std::string>());
    }
    rewritten_.emplace_back("--");
    rewritten_.insert(rewritten_.end(), arguments_.begin(), arguments_.end());
    std::vector<const char*> argv = {tool_.name.c_str()};
    for (const std::string& word : rewritten_) argv.push_back(word.c_str());
    const auto parsed = parser.parse(static_cast<int>(argv.size()), argv.data());
    const std::vector<std::string>& positionals = result_.positionals_ = parsed.unmatched();
    const std::size_t most = tool_.max_positionals;
    require(positionals.size() <= most, "unexpected argument '",
            positionals.size() > most ? printable(positionals[most]) : "", "'; see ", tool_.name,
            " --help");
    for (std::size_t i = 0; i < given_.size(); ++i) {
      take_given(given_[i], parsed.arguments()[i].value());
    }
  }

  void take_given(const Given& given, const std::string& text) {
    const Option& option = *given.entry->option;
    Options::Value& value = result_.values_[option.name];
    value.given = true;
    if (option.kind == OptionKind::flag) {
      value.texts = {parse_switch(text, given.word) != given.entry->negated ? "1" : "0"};
      return;
    }
    check_value(option, text, given.word);
    if (option.kind != OptionKind::list) value.texts.clear();
    value.texts.push_back(known_value(option, text, given.word));
  }

  // The value, or the one that stands here for that of another program.
  std::string known_value(const Option& option, const std::string& text, const std::string& where) {
    for (const auto& [other, here] : option.synonyms) {
      if (text != other) continue;
      result_.notes_.push_back(where + ' ' + text + ": taken as " + here);
      return here;
    }
    return text;
  }

  void take_variable(const Option& option) {
    Options::Value& value = result_.values_[option.name];
    if (value.given) return;
    const bool is_flag = option.kind == OptionKind::flag;
    if (const auto set = first_set(variables_of(option_words(option)), environment_)) {
      if (!is_flag) check_value(option, set->text, set->name);
      value.texts = {is_flag ? (parse_switch(set->text, set->name) ? "1" : "0")
                             : known_value(option, set->text, set->name)};
    } else if (const auto no = first_set(variables_of(negated_words(option)), environment_)) {
      value.texts = {parse_switch(no->text, no->name) ? "0" : "1"};
    } else {
      return;
    }
    value.given = true;
    value.from_environment = true;
  }

  void take_default(const Option& option) {
    Options::Value& value = result_.values_[option.name];
    const bool is_flag = option.kind == OptionKind::flag;
    if (value.given || option.fallback.empty() || (is_flag && option.fallback == "auto")) return;
    value.texts = {is_flag ? (option.fallback == "true" ? "1" : "0") : option.fallback};
  }

  const ToolSpec& tool_;
  std::span<const std::string> words_;
  const Environment& environment_;
  std::size_t next_ = 0;
  std::vector<Entry> table_;
  std::vector<std::string> rewritten_, arguments_;
  std::vector<Given> given_;
  Options result_;
};

std::vector<Option> in_group(const std::string& group, std::vector<Option> options) {
  for (Option& option : options) option.group = group;
  return options;
}

void add_options(ToolSpec& tool, std::vector<Option> options) {
  for (Option& option : options) tool.options.push_back(std::move(option));
}

Options parse_options(const ToolSpec& tool, std::span<const std::string> words,
                      const Environment& environment) {
  return OptionReader(tool, words, environment).read();
}

std::vector<std::string> variables_of(const ToolSpec& tool) {
  std::vector<std::string> names;
  for (const Option& option : all_options(tool)) {
    for (const auto& words : {option_words(option), negated_words(option)}) {
      for (auto& name : variables_of(words)) names.push_back(std::move(name));
    }
  }
  return names;
}

std::vector<std::string> misspelt_variables(const ToolSpec& tool,
                                            std::span<const std::string> variables,
                                            KnownVariables known) {
  const std::vector<std::string> own = variables_of(tool);
  std::vector<std::string> lines;
  for (const std::string& variable : variables) {
    if (!variable.starts_with(kVariablePrefix)) continue;
    if (std::ranges::find(own, variable) != own.end()) continue;
    // It may be of another tool.
    const std::vector<std::string> all = known == nullptr ? std::vector<std::string>() : known();
    if (std::ranges::find(all, variable) != all.end()) continue;
    // Where those of the others are not known, no letter at the end counts: --method and --methods
    // are options of two tools, and other such pairs are at least two letters apart.
    const auto slip = std::ranges::find_if(own, [&](const std::string& name) {
      const bool other = variable.starts_with(name) || name.starts_with(variable);
      return is_slip(variable, name) && (!all.empty() || !other);
    });
    if (slip == own.end() && all.empty()) continue;
    lines.push_back(printable(variable) + " is no variable of " + tool.name +
                    (slip == own.end() ? " or another tool" : ": did you mean " + *slip + "?"));
  }
  return lines;
}

const Options::Value& Options::declared(std::string_view name) const {
  const auto found = values_.find(name);
  require(found != values_.end(), "no option is declared as '", name, "'");
  return found->second;
}

bool Options::given(std::string_view name) const { return declared(name).given; }
bool Options::from_environment(std::string_view name) const {
  return declared(name).from_environment;
}
bool Options::has(std::string_view name) const { return !declared(name).texts.empty(); }

const Options::Value& Options::value(std::string_view name, OptionKind kind) const {
  const Value& found = declared(name);
  require(found.kind == kind, "no option of this kind is declared as '", name, "'");
  require(kind == OptionKind::list || kind == OptionKind::flag || !found.texts.empty(), "option --",
          name, " has no value");
  return found;
}

bool Options::flag(std::string_view name) const {
  const Value& found = value(name, OptionKind::flag);
  return !found.texts.empty() && found.texts[0] == "1";
}

void Options::replace_texts(std::string_view name,
                            const std::function<std::string(const std::string&)>& other) {
  declared(name);
  for (std::string& text : values_.find(name)->second.texts) text = other(text);
}

void Options::add_text(std::string_view name, const std::string& text, bool further) {
  declared(name);
  Value& value = values_.find(name)->second;
  value.given = true;
  if (!further || value.kind != OptionKind::list) value.texts.clear();
  value.texts.push_back(text);
}

void Options::clear(std::string_view name) {
  const OptionKind kind = declared(name).kind;
  values_.find(name)->second = {.kind = kind};
}

void Options::add_missing(const Options& other) {
  for (const auto& [name, value] : other.values_) {
    declared(name);
    Value& own = values_.find(name)->second;
    if (value.given && !own.given) own = value;
  }
}

std::string Options::take_positional() {
  ensure(!positionals_.empty(), "no positional is left");
  std::string first = std::move(positionals_.front());
  positionals_.erase(positionals_.begin());
  return first;
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
