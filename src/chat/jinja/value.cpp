#include "chat/jinja/value.h"

#include <algorithm>

#include "chat/jinja/context.h"

namespace leq::jinja {
namespace {

constexpr std::size_t kMostBytes = std::size_t{512} << 20;

bool equal_at(const Value& a, const Value& b, int depth) {
  if (depth > kMostValueDepth) fail("chat template: a value nested deeper than ", kMostValueDepth);
  if (a.is_number() && b.is_number()) {
    return a.is_whole() && b.is_whole() ? a.whole() == b.whole() : a.number() == b.number();
  }
  if (a.type != b.type) return false;
  switch (a.type) {
    case Value::Type::undefined:
    case Value::Type::none:
      return true;
    case Value::Type::text:
      return a.bytes() == b.bytes();
    case Value::Type::list:
      return a.list->is_tuple == b.list->is_tuple &&
             std::ranges::equal(a.list->items, b.list->items, [&](const Value& x, const Value& y) {
               return equal_at(x, y, depth + 1);
             });
    case Value::Type::dict:
      return a.dict->items.size() == b.dict->items.size() &&
             std::ranges::all_of(a.dict->items, [&](const auto& entry) {
               const Value* other = b.dict->find(entry.first);
               return other != nullptr && equal_at(entry.second, *other, depth + 1);
             });
    case Value::Type::function:
      return a.function == b.function;
    default:
      return a.macro == b.macro;  // identity
  }
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  const auto found = std::ranges::find_if(items, [&](const auto& entry) {
    return entry.first.is_text() && entry.first.bytes() == key;
  });
  return found == items.end() ? nullptr : &found->second;
}

const Value* Dict::find(const Value& key) const {
  const auto found =
      std::ranges::find_if(items, [&](const auto& entry) { return equal(entry.first, key); });
  return found == items.end() ? nullptr : &found->second;
}

Value none_value() {
  Value value;
  value.type = Value::Type::none;
  return value;
}

Value of(bool boolean) {
  Value value;
  value.type = Value::Type::boolean;
  value.boolean = boolean;
  return value;
}

Value of(std::int64_t integer) {
  Value value;
  value.type = Value::Type::integer;
  value.integer = integer;
  return value;
}

Value of(double real) {
  Value value;
  value.type = Value::Type::real;
  value.real = real;
  return value;
}

void Heap::charge(std::size_t bytes) {
  bytes_ += bytes + 64;
  require(bytes_ <= kMostBytes, "the chat template takes more than ", kMostBytes,
          " bytes of memory for this conversation");
}

Value Heap::text(Text text) {
  charge(2 * text.size());
  Value value;
  value.type = Value::Type::text;
  value.text = &texts_.emplace_back(std::move(text));
  return value;
}

Value Heap::list(std::vector<Value> items) {
  charge(items.size() * sizeof(Value));
  Value value;
  value.type = Value::Type::list;
  value.list = &lists_.emplace_back(List{std::move(items), false});
  return value;
}

Value Heap::tuple(std::vector<Value> items) {
  const Value value = list(std::move(items));
  lists_.back().is_tuple = true;
  return value;
}

Value Heap::dict(Dict dict) {
  charge(dict.items.size() * 2 * sizeof(Value));
  Value value;
  value.type = Value::Type::dict;
  value.dict = &dicts_.emplace_back(std::move(dict));
  return value;
}

Value Heap::name_space() {
  charge(0);
  Value value;
  value.type = Value::Type::name_space;
  value.name_space = &name_spaces_.emplace_back();
  return value;
}

Value Heap::method(const Value& self, std::string_view name) {
  charge(0);
  Value value;
  value.type = Value::Type::method;
  value.method = &methods_.emplace_back(BoundMethod{self, name});
  return value;
}

Value Heap::loop(const Loop& loop) {
  charge(0);
  Value value;
  value.type = Value::Type::loop;
  value.loop = &loops_.emplace_back(loop);
  return value;
}

Loop& Heap::loop_of(const Value& value) { return const_cast<Loop&>(*value.loop); }

Value Heap::undefined(std::string_view name) {
  Value value;
  value.text = text(Text::foreign(name)).text;
  return value;
}

bool truth(const Value& value) {
  switch (value.type) {
    case Value::Type::undefined:
    case Value::Type::none:
      return false;
    case Value::Type::boolean:
      return value.boolean;
    case Value::Type::integer:
      return value.integer != 0;
    case Value::Type::real:
      return value.real != 0;
    case Value::Type::text:
      return !value.text->empty();
    case Value::Type::list:
      return !value.list->items.empty();
    case Value::Type::dict:
      return !value.dict->items.empty();
    default:
      return true;
  }
}

bool equal(const Value& a, const Value& b) { return equal_at(a, b, 0); }

std::string_view type_name(const Value& value) {
  constexpr std::string_view kNames[] = {
      "undefined", "none",        "a boolean", "an integer", "a number", "a text", "a list",
      "a dict",    "a namespace", "a macro",   "a function", "a method", "a loop"};
  return kNames[static_cast<std::size_t>(value.type)];
}

}  // namespace leq::jinja
