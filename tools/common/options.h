// Command lines as data: a tool declares a table of options and gets checked values back, from
// flags or from LEQ_ARG_* variables, with help, version and one-line errors of one shape.
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
  list,      // a text for each time the option is written
  integers,  // whole numbers separated by commas
};

struct Option {
  std::string name = {};       // long name without dashes, also its name in the code: "ctx-size"
  std::string spellings = {};  // other words for it, separated by spaces: "-c --context"
  OptionKind kind = OptionKind::flag;
  std::string value_name = {};  // "N", for the help
  // Value where none is given, as a user would type it; "" = none. Flags: "true"; "auto" = the tool
  // decides, has() is false.
  std::string fallback = {};
  std::string help = {};
  std::string group = {};                                     // heading in the help
  double minimum = -std::numeric_limits<double>::infinity();  // numbers: inclusive range
  double maximum = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};      // texts: the only values allowed, if any
  std::vector<std::string> suggestions = {};  // values that shells offer, among others
  bool required = false;
  std::string negations = {};  // flags: other words for --no-name: "-no-cnv"
  bool hidden = false;         // accepted, but not in the help
  // Flags: the next word is the value where it is on, off or auto, which is on.
  bool value_may_follow = false;
};

enum class ForeignUse : std::uint8_t {
  silent,   // nothing would be different
  told,     // it does nothing here, which `text` explains in a line
  refused,  // it asks for what is not here; `text` says what to do
};

// Words that people know from another program and that are no options here.
struct ForeignOption {
  std::string words = {};  // separated by spaces
  ForeignUse use = ForeignUse::silent;
  std::string_view text = {};
  int values = 0;                 // that follow it
  bool value_may_follow = false;  // as above
};

// A flag that is answered at once, like --version, whatever else is missing or wrong.
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
  // Written as a flag or set in the environment; a default does not count.
  bool given(std::string_view name) const;
  // Given, and by its variable.
  bool from_environment(std::string_view name) const;
  // True where given or with a default; false: the getters below must not be called.
  bool has(std::string_view name) const;

  // False: this tool has no such option.
  bool declares(std::string_view name) const { return values_.find(name) != values_.end(); }

  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const std::vector<std::string>& list(std::string_view name) const;  // empty where not given
  std::vector<std::int64_t> integers(std::string_view name) const;
  const std::vector<std::string>& positionals() const { return positionals_; }
  // Puts other texts in the place of those given: one, or those of a list.
  void replace_texts(std::string_view name,
                     const std::function<std::string(const std::string&)>& other);
  // As if the command line said so.
  void set_text(std::string_view name, const std::string& text);
  // Lines for people: words that do nothing here.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  friend class OptionReader;
  struct Value {
    OptionKind kind = OptionKind::flag;
    bool given = false;
    bool from_environment = false;
    std::vector<std::string> texts;  // one, or for lists one for each time; flags "1" or "0"
  };
  const Value& value(std::string_view name, OptionKind kind) const;

  std::map<std::string, Value, std::less<>> values_;
  std::vector<std::string> positionals_;
  std::vector<std::string> notes_;
};

// Value of an environment variable, nullopt where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// `words` without the program's name. A flag wins over its variable, LEQ_ARG_<NAME> by any of its
// long names, which wins over the default. Throws Error naming the word (or variable), the value,
// and what is allowed.
Options parse_options(const ToolSpec& tool, std::span<const std::string> words,
                      const Environment& environment);

// Of `variables`, names of an environment, a line for each LEQ_ARG_* that is none of the tool's but
// much like one.
std::vector<std::string> misspelt_variables(const ToolSpec& tool,
                                            std::span<const std::string> variables);

// The tool's own options and what every tool has: --help, --version ...
std::vector<Option> all_options(const ToolSpec& tool);

// --help: at most 80 columns, grouped in the order of first appearance.
std::string help_text(const ToolSpec& tool);

// The whole life of a tool: parses argv, answers --help, --version, --man and --completion, runs
// `body` with the values and returns its exit status. Errors go to stderr as "leq-run: error: ...",
// exit status 1.
int run_tool(const ToolSpec& tool, int argc, const char* const* argv,
             const std::function<int(const Options&)>& body);

// The same for main(): where there is no memory even for the table or for an error, it says so.
int run_tool(const char* name, ToolSpec (*spec)(), int argc, const char* const* argv,
             int (*body)(const Options&)) noexcept;

}  // namespace leq
