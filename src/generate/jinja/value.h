// Values of a template's expressions, as in Python. Texts, lists and dicts are immutable,
// namespaces are not; all live in a Heap for the time of one rendering, so that a Value is cheap to
// copy and nothing is destroyed recursively.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string_view>
#include <utility>
#include <vector>

#include "generate/jinja/text.h"

namespace leq::jinja {

struct Value;
struct Macro;
struct Loop;
struct BoundMethod;

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in the order of insertion
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
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
    function,  // a global one, by its number
    method,    // of a value
    loop
  };
  Type type = Type::undefined;
  union {
    const Text* text = nullptr;  // undefined: its name, or null
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
  // As Python's int, bool among them.
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

// Where a loop stands.
struct Loop {
  std::size_t index = 0;  // from 0 on
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
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value dict(Dict dict);
  Value name_space();
  Value method(const Value& self, std::string_view name);
  Value loop(const Loop& loop);  // it changes as the loop goes on
  // With the name of what is not there, for messages.
  Value undefined(std::string_view name);
  Loop& loop_of(const Value& value);

  // Memory in use, about. Throws Error where it is more than it may be.
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

// Python's bool(), == and the name of a value's type.
bool truth(const Value& value);
bool equal(const Value& a, const Value& b);
std::string_view type_name(const Value& value);

}  // namespace leq::jinja
