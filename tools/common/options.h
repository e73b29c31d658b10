// Declarative command lines: a tool declares a table of options and gets checked values, from flags
// or from LEQ_ARG_* variables, with help, version and uniform one-line errors.
#pragma once

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
  std::string name = {};       // long name without dashes, also its name in the code: "ctx-size"
  std::string spellings = {};  // other words for it, separated by spaces: "-c --context"
  OptionKind kind = OptionKind::flag;
  std::string value_name = {};  // "N", in the help
  // The default, as a user would type it; "" = none. Flags: "true"; "auto" = the tool decides,
  // has() is false then.
  std::string fallback = {};
  std::string help = {};
  std::string group = {};                                     // heading in the help
  double minimum = -std::numeric_limits<double>::infinity();  // numbers: inclusive range
  double maximum = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};      // texts: the only values allowed, if any
  std::vector<std::string> suggestions = {};  // completions offered by shells, beside others
  bool required = false;
  std::string negations = {};  // flags: other words for --no-name: "-no-cnv"
  bool hidden = false;         // accepted, but not in the help
  // Flags: the next word is taken as the value if it is on, off or auto (= on).
  bool value_may_follow = false;
};

enum class ForeignUse : std::uint8_t {
  silent,   // no effect here
  told,     // no effect here; `text` explains it in a line
  refused,  // an unsupported feature; `text` gives advice
};

// Words of another program's options that users may know and that are no options here.
struct ForeignOption {
  std::string words = {};  // separated by spaces
  ForeignUse use = ForeignUse::silent;
  std::string_view text = {};
  int values = 0;                 // number of values after it
  bool value_may_follow = false;  // as above
};

// An option that prints a text and exits, like --version, even if other options are wrong.
struct Answer {
  std::string name = {};  // "list-devices"
  std::string help = {};
  std::function<std::string()> text;  // whole lines
};

struct ToolSpec {
  std::string name = {};     // "leq-run"
  std::string summary = {};  // one line
  std::vector<std::string>
      usage;  // command lines as a user would type them, the tool's name left out
  std::vector<Option> options = {};
  std::size_t max_positionals = 0;
  std::vector<Answer> answers = {};
  std::span<const ForeignOption> foreign = {};
};

// The checked values of one command line.
class Options {
 public:
  // Given as a flag or in the environment, not by default.
  bool given(std::string_view name) const;
  // Given by its environment variable.
  bool from_environment(std::string_view name) const;
  // Whether it has a value, given or default; otherwise the getters below must not be called.
  bool has(std::string_view name) const;

  // Whether this tool has such an option.
  bool declares(std::string_view name) const { return values_.find(name) != values_.end(); }

  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const std::vector<std::string>& list(std::string_view name) const;  // empty where not given
  std::vector<std::int64_t> integers(std::string_view name) const;
  const std::vector<std::string>& positionals() const { return positionals_; }
  // Replaces the given text, or each text of a list.
  void replace_texts(std::string_view name,
                     const std::function<std::string(const std::string&)>& other);
  // Sets a value as if it was given on the command line.
  void set_text(std::string_view name, const std::string& text);
  // Notes for the user on words that have no effect.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  friend class OptionReader;
  struct Value {
    OptionKind kind = OptionKind::flag;
    bool given = false;
    bool from_environment = false;
    std::vector<std::string> texts;  // one; of a list each; of flags "1" or "0"
  };
  const Value& value(std::string_view name, OptionKind kind) const;

  std::map<std::string, Value, std::less<>> values_;
  std::vector<std::string> positionals_;
  std::vector<std::string> notes_;
};

// Value of an environment variable, nullopt where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// `words`: without the program's name. Precedence: flag, environment variable (LEQ_ARG_<NAME> for
// each long name), default. Throws Error naming the word (or variable), the value, and what is
// allowed.
Options parse_options(const ToolSpec& tool, std::span<const std::string> words,
                      const Environment& environment);

// One line for each LEQ_ARG_* variable in `variables` (names) that is not one of the tool's but
// close to one.
std::vector<std::string> misspelt_variables(const ToolSpec& tool,
                                            std::span<const std::string> variables);

// The tool's own options and those that every tool has: --help, --version ...
std::vector<Option> all_options(const ToolSpec& tool);

// --help: at most 80 columns; groups in the order of first appearance.
std::string help_text(const ToolSpec& tool);

// Runs a tool: parses argv, handles --help, --version, --man and --completion, else calls `body`
// with the values; returns the exit status. Errors are printed to stderr as "leq-run: error: ...",
// with exit status 1.
int run_tool(const ToolSpec& tool, int argc, const char* const* argv,
             const std::function<int(const Options&)>& body);

// The same for main(); reports it if memory runs out even for the table or an error message.
int run_tool(const char* name, ToolSpec (*spec)(), int argc, const char* const* argv,
             int (*body)(const Options&)) noexcept;

}  // namespace leq
