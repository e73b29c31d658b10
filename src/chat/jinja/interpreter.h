// Runs a compiled template over a conversation: the context of one rendering, and the functions for
// filters, tests, methods and operators, which are defined in separate files.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "chat/jinja/syntax.h"
#include "chat/jinja/value.h"

namespace leq::jinja {

inline constexpr std::int64_t kMaxSteps = 20'000'000;
inline constexpr std::size_t kMaxOutputBytes = std::size_t{64} << 20;
inline constexpr int kMaxCalls = 60;        // limit of nested macro calls
inline constexpr int kMaxValueDepth = 100;  // limit of nested lists

struct Context {
  std::string_view source;
  std::uint32_t line = 1;
  std::int64_t steps = 0;
  std::size_t uncounted = 0;  // bytes of less than a step
  Heap heap;
  std::tm now = {};
  std::string_view refusal = ": the chat template refuses this conversation: ";

  // Throws Error with the template's name and the current line.
  template <class... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    fail(source, ": chat template, line ", line, ": ", parts...);
  }
  void step(std::int64_t count = 1) {
    steps += count;
    if (steps > kMaxSteps) wrong("takes more than ", kMaxSteps, " steps");
  }
  // Counts the reading of so many bytes, 64 of which are a step.
  void step_over(std::size_t count) {
    uncounted += count;
    step(static_cast<std::int64_t>(uncounted / 64));
    uncounted %= 64;
  }
  // The size of the common beginning of two texts, whether they are the same, and the first and the
  // last place of one in another (or npos). They count what they compare, as a search may take time
  // quadratic in the texts' sizes. Defined in value.cpp.
  std::size_t common(std::string_view a, std::string_view b);
  bool same(std::string_view a, std::string_view b);
  std::size_t find(std::string_view text, std::string_view wanted);
  std::size_t find_last(std::string_view text, std::string_view wanted);
  void check_depth(int depth) const {
    if (depth > kMaxValueDepth) wrong("a value nested deeper than ", kMaxValueDepth);
  }
  void check_size(std::size_t bytes) const {
    if (bytes > kMaxOutputBytes) wrong("a text of more than ", kMaxOutputBytes, " bytes");
  }
  // Throws Error if the value is undefined, otherwise returns it.
  const Value& defined(const Value& value) const;
  std::string_view text_of(const Value& value, std::string_view what) const;
  std::int64_t whole_of(const Value& value, std::string_view what) const;
};

struct Arguments {
  std::vector<Value> values;
  std::vector<std::pair<std::string_view, Value>> named;

  // The i-th positional argument or the named one; nullopt if neither is given.
  std::optional<Value> get(std::size_t i, std::string_view name) const;
  // Throws Error if there are more positional arguments, or names other than these.
  void check(const Context& context, std::string_view callee, std::size_t most,
             std::initializer_list<std::string_view> names = {}) const;
};

// Like strftime, but in English regardless of the locale.
std::string time_text(const Context& context, std::string_view format);

// Defined in value.cpp: Python's str() and json.dumps().
Text to_text(Context& context, const Value& value);
struct JsonStyle {
  std::optional<std::string> indent;  // indentation of one level
  bool ascii = false, sorted = false;
  std::string comma = ", ", colon = ": ";
};
std::string to_json(Context& context, const Value& value, const JsonStyle& style);

// Defined in operators.cpp:
Value binary(Context& context, std::string_view sign, const Value& a, const Value& b);
bool compare(Context& context, std::string_view sign, const Value& a, const Value& b);
bool less(Context& context, const Value& a, const Value& b);
Value attribute(Context& context, const Value& value, std::string_view name);
Value item(Context& context, const Value& value, const Value& index);
Value slice(Context& context, const Value& value, const Value& from, const Value& to,
            const Value& step);
std::int64_t length(Context& context, const Value& value);
// The values that a loop over this value iterates.
std::vector<Value> elements(Context& context, const Value& value);

// Throws Error if there is no such filter, test or method, or if its arguments are wrong.
Value apply_filter(Context& context, std::string_view name, const Value& value,
                   const Arguments& arguments);
bool apply_test(Context& context, std::string_view name, const Value& value,
                const Arguments& arguments);
// Returns nullopt if values of this type have no such method.
std::optional<Value> method_of(Context& context, const Value& self, std::string_view name);
Value call_method(Context& context, const BoundMethod& method, const Arguments& arguments);
std::string changed_case(std::string_view text, std::string_view how);  // upper, lower, ...
// The key for sort, min and unique; texts are compared case-insensitively unless `with_case`.
Value sort_key(Context& context, const Value& value, bool with_case);
// The value of an attribute path such as a.b.0
Value path_attribute(Context& context, Value value, const Value& path);

using Variables = std::vector<std::pair<std::string_view, Value>>;

// Returns the whole text. The variables' values are in the context's heap, and their names must
// outlive the call. Throws Error naming the source, the line and the cause: an unsupported feature,
// an error that the template raises (raise_exception), or an exceeded limit.
Text run(const Syntax& syntax, const Variables& variables, Context& context);

}  // namespace leq::jinja
