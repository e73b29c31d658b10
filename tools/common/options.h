// Declarative command lines: a tool declares a table of options and gets checked values, from flags
// or from LEQ_ARG_* variables, with help, version and uniform one-line errors.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leq {

enum class OptionKind : std::uint8_t {
  flag,      // --name, --no-name
  integer,   // one whole number
  real,      // one number
  text,      // one text
  list,      // the option may be repeated
  integers,  // whole numbers separated by commas
};

struct Option {
  std::string name = {};       // long name without dashes, also used in the code: "ctx-size"
  std::string spellings = {};  // other spellings, separated by spaces: "-c --context"
  OptionKind kind = OptionKind::flag;
  std::string value_name = {};  // "N", in the help
  // The default, as a user would type it; "" = none. For flags: "true"; "auto" = the tool decides,
  // and has() returns false.
  std::string fallback = {};
  std::string help = {};
  std::string group = {};                                     // heading in the help
  double minimum = -std::numeric_limits<double>::infinity();  // numbers: inclusive range
  double maximum = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};      // texts: if not empty, the only valid values
  std::vector<std::string> suggestions = {};  // further values that shell completions offer
  // Values of other programs and what is taken in their place, which a note says.
  std::vector<std::array<std::string, 2>> synonyms = {};
  std::string negations = {};  // flags: other spellings of --no-name: "-no-cnv"
  bool hidden = false;         // accepted but not listed in the help
  // Flags: the next word is the value if it is on, off or auto (= on).
  bool value_may_follow = false;
};

enum class ForeignUse : std::uint8_t {
  silent,   // ignored without a message
  noted,    // ignored; `text` explains why in one line
  refused,  // an unsupported feature; `text` gives advice
};

// Option words of another program that users may know, but that are not options here.
struct ForeignOption {
  std::string words = {};  // separated by spaces
  ForeignUse use = ForeignUse::silent;
  std::string_view text = {};
  int values = 0;                 // number of values that follow it
  bool value_may_follow = false;  // like Option::value_may_follow
};

// An option that prints a text and exits, like --version, even if other options are invalid.
struct Answer {
  std::string name = {};  // "list-devices"
  std::string help = {};
  std::function<std::string()> text;  // whole lines
};

class Options;

struct ToolSpec {
  std::string name = {};     // "leq-run"
  std::string summary = {};  // one line
  std::vector<std::string>
      usage;  // example command lines as users would type them, without the tool's name
  std::string advice = {};    // shown in the help before the options
  std::string statuses = {};  // exit statuses beside 0, 1 and 130: "2 if ..."
  std::vector<Option> options = {};
  std::size_t max_positionals = 0;
  std::vector<Answer> answers = {};
  std::span<const ForeignOption> foreign = {};
  std::vector<ToolSpec> commands = {};  // "leq run", for completions
};

// A tool's table and what it does, which returns the exit status.
struct Tool {
  const char* name;
  ToolSpec (*spec)();
  int (*body)(const Options&);
};

// Puts all options under one heading of the help.
std::vector<Option> in_group(const std::string& group, std::vector<Option> options);
// The heading of options that few users need; the help shows it after all others.
inline constexpr const char* kTuningGroup = "Memory and speed";
void add_options(ToolSpec& tool, std::vector<Option> options);

// The checked values of one command line.
class Options {
 public:
  // Returns whether the option was given as a flag or in the environment, not by default.
  bool given(std::string_view name) const;
  // Returns whether the option was given by its environment variable.
  bool from_environment(std::string_view name) const;
  // Returns whether the option has a value, given or default; the getters below require a value.
  bool has(std::string_view name) const;

  // Returns whether this tool declares the option.
  bool declares(std::string_view name) const { return values_.find(name) != values_.end(); }

  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const std::vector<std::string>& list(std::string_view name) const;  // empty if not given
  std::vector<std::int64_t> integers(std::string_view name) const;
  const std::vector<std::string>& positionals() const { return positionals_; }
  // Replaces the given text of an option, or each text of a list.
  void replace_texts(std::string_view name,
                     const std::function<std::string(const std::string&)>& other);
  // Sets a value as if it had been given on the command line.
  void set_text(std::string_view name, const std::string& text) { add_text(name, text, false); }
  // The same, beside the values of a list that are there already if `further`.
  void add_text(std::string_view name, const std::string& text, bool further);
  // Removes the given values.
  void clear(std::string_view name);
  // Takes the given values of `other` for options that are not given here.
  void add_missing(const Options& other);
  // Removes the first positional and returns it; there must be one.
  std::string take_positional();
  // The tool's name, which begins its lines: "leq-run".
  const std::string& tool() const { return tool_; }
  // Returns notes for the user about words that have no effect.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  friend class OptionReader;
  struct Value {
    OptionKind kind = OptionKind::flag;
    bool given = false;
    bool from_environment = false;
    std::vector<std::string> texts;  // one; for lists several; for flags "1" or "0"
  };
  const Value& declared(std::string_view name) const;
  const Value& value(std::string_view name, OptionKind kind) const;

  std::string tool_;
  std::map<std::string, Value, std::less<>> values_;
  std::vector<std::string> positionals_;
  std::vector<std::string> notes_;
};

// Returns the value of an environment variable, nullopt if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// `words` excludes the program's name. Precedence: flag, environment variable (LEQ_ARG_<NAME> for
// each long name), default. Throws Error naming the word (or variable), the value, and the allowed
// values.
Options parse_options(const ToolSpec& tool, std::span<const std::string> words,
                      const Environment& environment);

// Returns all spellings of an option, short ones first: {"-c", "--ctx-size"}.
std::vector<std::string> option_words(const Option& option);
// Returns words that switch a flag off: {"-no-cnv", "--no-conversation"}; none for other kinds.
std::vector<std::string> negated_words(const Option& option);
// Returns the known word with the smallest edit distance, if it is small enough for a typo.
std::optional<std::string> nearest_word(const std::string& word,
                                        std::span<const std::string> known);

// The LEQ_ARG_* variables of a tool.
std::vector<std::string> variables_of(const ToolSpec& tool);
// One line for each LEQ_ARG_* variable in `variables` (names) that the tool does not have but that
// resembles one of its variables; with `known`, which returns those of all tools, for each that is
// not of these.
using KnownVariables = std::vector<std::string> (*)();
std::vector<std::string> misspelt_variables(const ToolSpec& tool,
                                            std::span<const std::string> variables,
                                            KnownVariables known = nullptr);

// Runs a tool: parses argv, handles --help, --version, --man and --completion, otherwise calls
// `body` with the values; returns the exit status. Errors are printed to stderr as "leq-run: error:
// ...", with exit status 1.
int run_tool(const ToolSpec& tool, int argc, const char* const* argv,
             const std::function<int(const Options&)>& body, KnownVariables known = nullptr);

// Does the same for main(); also reports running out of memory while the table is created.
int run_tool(const Tool& tool, int argc, const char* const* argv,
             KnownVariables known = nullptr) noexcept;

}  // namespace leq
