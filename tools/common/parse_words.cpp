#include "tools/common/parse_words.h"

#include <algorithm>
#include <cxxopts.hpp>

#include "base/error.h"
#include "base/text.h"
#include "tools/common/option_words.h"

namespace leq {
namespace {

// Rewrites the words into a form that cxxopts can parse.
class Rewriter {
 public:
  Rewriter(const ToolSpec& tool, std::span<const std::string> words) : tool_(tool), words_(words) {
    for (const Option& option : tool.options) {
      for (const auto& word : option_words(option)) table_.push_back({word, &option, false});
      for (const auto& word : negated_words(option)) table_.push_back({word, &option, true});
    }
    while (next_ < words_.size()) take(words_[next_++]);
  }

  // Returns "--ctx-size=128" for each of options(), followed by the arguments after "--".
  std::vector<std::string> words() const {
    std::vector<std::string> all = rewritten_;
    all.push_back("--");
    all.insert(all.end(), arguments_.begin(), arguments_.end());
    return all;
  }
  const std::vector<GivenOption>& options() const { return options_; }  // without values
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Entry {
    std::string word;
    const Option* option;
    bool negated;
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
    const auto found = std::ranges::find_if(tool_.foreign, [&](const ForeignOption& foreign) {
      const auto words = split(foreign.words, " ");
      return std::ranges::find(words, word) != words.end();
    });
    return found == tool_.foreign.end() ? nullptr : &*found;
  }

  void take_foreign(const ForeignOption& foreign, const std::string& word, bool has_value) {
    require(foreign.use != ForeignUse::refused, word, ": ", foreign.text);
    if (foreign.use == ForeignUse::told) notes_.push_back(word + ": " + std::string(foreign.text));
    if (has_value) return;
    for (int i = 0; i < foreign.values; ++i) {
      require(next_ < words_.size(), word, ": a value must follow");
      ++next_;
    }
    if (foreign.value_may_follow && !take_switch()) take_number_of_switch();
  }

  // Skips a following 1, 0, true or false, which flags of some other programs accept as on or off.
  void take_number_of_switch() {
    if (next_ == words_.size()) return;
    const std::string& word = words_[next_];
    if (word == "1" || word == "0" || word == "true" || word == "false") ++next_;
  }

  // Consumes "on", "off" or "auto" if it is the next word.
  std::optional<std::string> take_switch() {
    if (next_ == words_.size()) return std::nullopt;
    const std::string& word = words_[next_];
    if (word != "on" && word != "off" && word != "auto") return std::nullopt;
    ++next_;
    return word;
  }

  void add(const Entry& entry, const std::string& word, const std::string& value) {
    options_.push_back({entry.option->name, word, "", entry.negated});
    rewritten_.push_back("--" + entry.option->name + "=" + value);
  }

  // Returns the value after a word that has no "=value".
  std::string following(const Entry& entry, const std::string& word) {
    if (entry.option->kind == OptionKind::flag) {
      const auto value = entry.option->value_may_follow ? take_switch() : std::nullopt;
      return value == "off" ? "0" : "1";
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

  const ToolSpec& tool_;
  std::span<const std::string> words_;
  std::size_t next_ = 0;
  std::vector<Entry> table_;
  std::vector<std::string> rewritten_, arguments_;
  std::vector<GivenOption> options_;
  std::vector<std::string> notes_;
};

}  // namespace

ParsedWords parse_words(const ToolSpec& tool, std::span<const std::string> words) {
  const Rewriter rewriter(tool, words);
  cxxopts::Options parser(tool.name);
  for (const Option& option : tool.options) {
    // All options are declared as texts, as cxxopts splits lists at commas and accepts hexadecimal.
    parser.add_options()(option.name, option.help, cxxopts::value<std::string>());
  }
  const std::vector<std::string> rewritten = rewriter.words();
  std::vector<const char*> argv = {tool.name.c_str()};
  for (const std::string& word : rewritten) argv.push_back(word.c_str());
  const auto parsed = parser.parse(static_cast<int>(argv.size()), argv.data());

  ParsedWords result{rewriter.options(), parsed.unmatched(), rewriter.notes()};
  for (std::size_t i = 0; i < result.options.size(); ++i) {
    result.options[i].value = parsed.arguments()[i].value();
  }
  require(result.positionals.size() <= tool.max_positionals, "unexpected argument '",
          result.positionals.size() > tool.max_positionals
              ? printable(result.positionals[tool.max_positionals])
              : "",
          "'; see ", tool.name, " --help");
  return result;
}

}  // namespace leq
