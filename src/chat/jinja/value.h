// Values of a template's expressions, and their texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leq::jinja {

struct Context;
struct Value;

// A text that records for each byte whether the template or the conversation wrote it: only bytes
// of the template may form special tokens. Slices and concatenations keep the origin; texts that
// are computed from others (upper case, JSON) belong to the conversation.
class Text {
 public:
  Text() = default;
  // Text that the template wrote itself.
  static Text own(std::string_view bytes) { return Text(bytes, '\1'); }
  // Text of the conversation, or text that is computed from other texts.
  static Text foreign(std::string_view bytes) { return Text(bytes, '\0'); }

  std::string_view bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  bool is_own(std::size_t at) const { return own_[at] != '\0'; }

  Text slice(std::size_t from, std::size_t length) const;
  void append(const Text& other);
  bool operator==(const Text& other) const { return bytes_ == other.bytes_; }

  // Marks the result of |safe, which is not escaped again; text added to it is escaped.
  bool safe = false;

 private:
  Text(std::string_view bytes, char own) : bytes_(bytes), own_(bytes.size(), own) {}

  std::string bytes_;
  std::string own_;  // origin of each byte of bytes_
};

enum class Ends : std::uint8_t { both, left, right };
// Strips white space (all of Unicode's, as in Python), or the given characters, from the ends.
Text stripped(Context& context, const Text& text, Ends ends);
Text stripped(Context& context, const Text& text, Ends ends, std::string_view characters);
// The number of bytes of white space at the beginning of a text.
std::size_t leading_space(std::string_view bytes);
std::size_t trailing_space(std::string_view bytes);

// Splits at most `most` times, from the left; unlimited if negative. The separator must not be
// empty. The pieces are texts of the context's heap, so that its limit holds for them.
std::vector<Value> split(Context& context, const Text& text, std::string_view separator,
                         std::int64_t most);
std::vector<Value> split_right(Context& context, const Text& text, std::string_view separator,
                               std::int64_t most);
// Splits at white space, without empty pieces.
std::vector<Value> split_space(Context& context, const Text& text, std::int64_t most);
std::vector<Value> split_lines(Context& context, const Text& text, bool keep_ends);
Text replaced(Context& context, const Text& text, const Text& from, const Text& to,
              std::int64_t most);
Text escaped(Context& context, const Text& text);  // for HTML

// Counts code points; an invalid UTF-8 byte counts as one character.
std::size_t count_characters(std::string_view bytes);
std::vector<std::size_t> character_starts(std::string_view bytes);  // and the end

// Values of a template's expressions, as in Python. Texts, lists and dicts are immutable,
// namespaces are not. All values belong to the Heap of one rendering, so that a Value is cheap to
// copy and nothing is destroyed recursively.
struct Macro;
struct Loop;
struct BoundMethod;

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in insertion order
  const Value* find(Context& context, std::string_view key) const;
  const Value* find(Context& context, const Value& key) const;
};

struct Namespace {
  std::vector<std::pair<std::string_view, Value>> items;
};

struct Value {
  enum class Type : std::uint8_t {
    undefined,
    none,
    boolean,
    integer,
    real,
    text,
    list,
    dict,
    name_space,
    macro,
    function,  // a global function, by its number
    method,    // a method bound to a value
    loop
  };
  Type type = Type::undefined;
  union {
    const Text* text = nullptr;  // if undefined: its name, or null
    bool boolean;
    std::int64_t integer;
    double real;
    const List* list;
    const Dict* dict;
    Namespace* name_space;
    const Macro* macro;
    std::size_t function;
    const BoundMethod* method;
    const Loop* loop;
  };

  bool is(Type wanted) const { return type == wanted; }
  bool is_text() const { return type == Type::text; }
  bool is_list() const { return type == Type::list; }
  bool is_dict() const { return type == Type::dict; }
  bool is_undefined() const { return type == Type::undefined; }
  bool is_none() const { return type == Type::none; }
  bool is_boolean() const { return type == Type::boolean; }
  // Whether it is an int in Python's sense, which includes bool.
  bool is_whole() const { return type == Type::integer || type == Type::boolean; }
  bool is_number() const { return is_whole() || type == Type::real; }
  std::int64_t whole() const { return type == Type::boolean ? boolean : integer; }
  double number() const { return type == Type::real ? real : static_cast<double>(whole()); }
  std::string_view bytes() const { return text->bytes(); }
};

struct BoundMethod {
  Value self;
  std::string_view name;
};

// The state of a running loop.
struct Loop {
  std::size_t index = 0;  // from 0
  const std::vector<Value>* items = nullptr;
  std::size_t depth = 1;
};

Value none_value();
Value of(bool value);
Value of(std::int64_t value);
Value of(double value);

class Heap {
 public:
  Value text(Text text);
  Value list(std::vector<Value> items, bool is_tuple = false);
  Value tuple(std::vector<Value> items);
  Value dict(Dict dict);
  Value name_space();
  Value method(const Value& self, std::string_view name);
  Value loop(const Loop& loop);  // refers to `loop`, which changes as the loop runs
  // An undefined value that keeps the missing name for error messages.
  Value undefined(std::string_view name);
  Loop& loop_of(const Value& value);

  // Adds to the approximate memory in use; throws Error if it exceeds the limit.
  void charge(std::size_t bytes);

 private:
  std::deque<Text> texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> name_spaces_;
  std::deque<BoundMethod> methods_;
  std::deque<Loop> loops_;
  std::size_t bytes_ = 0;
};

// Python's bool(), ==, and type name of a value.
bool truth(const Value& value);
bool equal(Context& context, const Value& a, const Value& b, int depth = 0);
std::string_view type_name(const Value& value);

}  // namespace leq::jinja
