// Operators, attributes and subscripts of values, as in Python, and tests of them.
#include "chat/jinja/interpreter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/text.h"

namespace leq::jinja {
namespace {

// Computes a op b in 64 bits: Python's integers are unbounded, but those of templates are small.
std::int64_t whole_binary(Context& context, std::string_view sign, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  if (sign == "+") {
    overflows = __builtin_add_overflow(a, b, &result);
  } else if (sign == "-") {
    overflows = __builtin_sub_overflow(a, b, &result);
  } else if (sign == "*") {
    overflows = __builtin_mul_overflow(a, b, &result);
  } else if (sign == "**") {
    result = 1;
    for (std::int64_t i = 0; i < b && !overflows && result != 0 && (a != 1); ++i) {
      overflows = __builtin_mul_overflow(result, a, &result) || i > 64;
    }
    if (a == -1) return b % 2 == 0 ? 1 : -1;
  } else {
    if (b == 0) context.wrong("division by zero");
    if (b == -1) {  // INT64_MIN / -1 does not fit
      overflows = sign == "//" && __builtin_sub_overflow(std::int64_t{0}, a, &result);
    } else {
      const std::int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
      result = sign == "//" ? quotient : a - quotient * b;
    }
  }
  if (overflows) context.wrong("a number that is too large");
  return result;
}

double real_binary(Context& context, std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") {
    const double power = std::pow(a, b);
    const bool is_wrong = std::isfinite(a) && std::isfinite(b) && !std::isfinite(power);
    if (is_wrong) context.wrong("a power that is no number, or one that is too large");
    return power;
  }
  if (b == 0) context.wrong("division by zero");
  if (sign == "/") return a / b;
  // As in CPython: a quotient that is rounded before its floor may be one too large.
  const double rest = std::fmod(a, b);
  const bool crosses = rest != 0 && (rest < 0) != (b < 0);
  if (sign == "%") return crosses ? rest + b : std::copysign(rest, b);
  const double quotient = (a - rest) / b - (crosses ? 1 : 0);
  const double whole = std::floor(quotient);
  if (quotient == 0) return std::copysign(0.0, a / b);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

Value repeated(Context& context, const Value& value, std::int64_t times) {
  const std::size_t size = value.is_text() ? value.text->size() : value.list->items.size();
  const auto count = static_cast<std::size_t>(size > 0 ? std::max<std::int64_t>(times, 0) : 0);
  if (count > 0 && count > kMaxOutputBytes / size) {
    context.wrong("a value of more than ", kMaxOutputBytes, " elements");
  }
  context.step_over(size * count);
  if (value.is_text()) {
    Text text;
    for (std::size_t i = 0; i < count; ++i) text.append(*value.text);
    return context.heap.text(std::move(text));
  }
  std::vector<Value> items;
  context.heap.charge(size * count * sizeof(Value));
  for (std::size_t i = 0; i < count; ++i) {
    items.insert(items.end(), value.list->items.begin(), value.list->items.end());
  }
  return context.heap.list(std::move(items), value.list->is_tuple);
}

Value joined(Context& context, const Value& a, const Value& b) {
  if (a.is_text()) {
    const bool safe = a.text->safe || b.text->safe;
    Text text = safe && !a.text->safe ? escaped(context, *a.text) : *a.text;
    text.append(safe && !b.text->safe ? escaped(context, *b.text) : *b.text);
    text.safe = safe;
    return context.heap.text(std::move(text));
  }
  std::vector<Value> items = a.list->items;
  items.insert(items.end(), b.list->items.begin(), b.list->items.end());
  return context.heap.list(std::move(items), a.list->is_tuple);
}

// The operator % of texts, as in "%s and %d" % values.
Value formatted(Context& context, const Value& format, const Value& values) {
  const std::vector<Value> items =
      values.is_list() && values.list->is_tuple ? values.list->items : std::vector<Value>{values};
  const std::string_view bytes = format.bytes();
  Text out;
  std::size_t done = 0, used = 0;
  for (std::size_t at = 0; (at = bytes.find('%', at)) != std::string_view::npos; at += 2) {
    out.append(format.text->slice(done, at - done));
    const char kind = at + 1 < bytes.size() ? bytes[at + 1] : '\0';
    if (kind == '%') {
      out.append(format.text->slice(at, 1));
    } else if (kind == 's' || (kind == 'd' && used < items.size() && items[used].is_whole())) {
      if (used >= items.size()) context.wrong("% with too few values for its text");
      const Value& value = items[used++];
      out.append(kind == 'd' ? Text::foreign(std::to_string(value.whole()))
                             : to_text(context, value));
      context.check_size(out.size());
    } else {
      context.wrong("% in a text with anything but %s, %d and %% is not supported");
    }
    done = at + 2;
  }
  if (used < items.size() && !values.is_dict())
    context.wrong("% with too many values for its text");
  out.append(format.text->slice(done, bytes.size() - done));
  return context.heap.text(std::move(out));
}

int order(Context& context, const Value& a, const Value& b, int depth) {
  context.check_depth(depth);
  if (a.is_number() && b.is_number()) {
    if (a.is_whole() && b.is_whole()) return a.whole() < b.whole() ? -1 : a.whole() > b.whole();
    return a.number() < b.number() ? -1 : a.number() > b.number();
  }
  if (a.is_text() && b.is_text()) {
    const std::size_t common = context.common(a.bytes(), b.bytes());
    const int bytes = a.bytes().substr(common).compare(b.bytes().substr(common));
    return bytes < 0 ? -1 : bytes > 0;
  }
  if (a.is_list() && b.is_list() && a.list->is_tuple == b.list->is_tuple) {
    const auto& x = a.list->items;
    const auto& y = b.list->items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(context, x[i], y[i])) return order(context, x[i], y[i], depth + 1);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  context.wrong("cannot compare ", type_name(a), " with ", type_name(b));
}

bool contains(Context& context, const Value& holder, const Value& value) {
  switch (holder.type) {
    case Value::Type::undefined:
      return false;
    case Value::Type::text:
      if (!value.is_text()) context.wrong("'in' a text, of ", type_name(value));
      return context.find(holder.bytes(), value.bytes()) != std::string_view::npos;
    case Value::Type::list:
      return std::ranges::any_of(holder.list->items,
                                 [&](const Value& item) { return equal(context, item, value); });
    case Value::Type::dict:
      return holder.dict->find(context, value) != nullptr;
    default:
      context.wrong("'in' ", type_name(holder));
  }
}

Value loop_attribute(const Value& value, std::string_view name) {
  const Loop& loop = *value.loop;
  const auto index = static_cast<std::int64_t>(loop.index);
  const std::int64_t count = std::ssize(*loop.items);
  if (name == "index") return of(index + 1);
  if (name == "index0") return of(index);
  if (name == "first") return of(index == 0);
  if (name == "last") return of(index + 1 == count);
  if (name == "length") return of(count);
  if (name == "revindex") return of(count - index);
  if (name == "revindex0") return of(count - index - 1);
  if (name == "depth") return of(static_cast<std::int64_t>(loop.depth));
  if (name == "depth0") return of(static_cast<std::int64_t>(loop.depth) - 1);
  if (name == "previtem" && index > 0) return (*loop.items)[loop.index - 1];
  if (name == "nextitem" && index + 1 < count) return (*loop.items)[loop.index + 1];
  return {};
}

struct Bounds {
  std::int64_t from = 0, step = 1, count = 0;
};

// Python's bounds of the slice [from:to:step] of `size` elements.
Bounds bounds_of(Context& context, std::int64_t size, const Value& from, const Value& to,
                 const Value& step) {
  Bounds bounds;
  bounds.step = step.is_none() ? 1 : context.whole_of(step, "a slice's step");
  if (bounds.step == 0) context.wrong("a slice with a step of 0");
  const bool back = bounds.step < 0;
  const auto place = [&](const Value& value, std::int64_t open) {
    if (value.is_none()) return open;
    std::int64_t at = context.whole_of(value, "a slice's bound");
    if (at < 0) at = at < -size ? -1 : at + size;
    if (at < 0) return back ? std::int64_t{-1} : std::int64_t{0};
    return std::min(at, back ? size - 1 : size);
  };
  bounds.from = place(from, back ? size - 1 : 0);
  const std::int64_t end = place(to, back ? -1 : size);
  const std::int64_t distance = back ? bounds.from - end : end - bounds.from;
  if (distance <= 0) return bounds;
  // A stride of at least `size` selects one element, whatever its value; abs(INT64_MIN) overflows.
  const std::int64_t stride =
      bounds.step == std::numeric_limits<std::int64_t>::min() ? size : std::abs(bounds.step);
  bounds.count = (distance - 1) / std::max<std::int64_t>(stride, 1) + 1;
  return bounds;
}

}  // namespace

Value binary(Context& context, std::string_view sign, const Value& a, const Value& b) {
  if (sign == "~") {
    Text text = to_text(context, a);
    text.append(to_text(context, b));
    text.safe = false;
    return context.heap.text(std::move(text));
  }
  context.defined(a);
  if (sign == "%" && a.is_text()) return formatted(context, a, b);
  context.defined(b);
  if (a.is_number() && b.is_number()) {
    const bool negative_power = sign == "**" && b.is_whole() && b.whole() < 0;
    if (a.is_whole() && b.is_whole() && sign != "/" && !negative_power) {
      return of(whole_binary(context, sign, a.whole(), b.whole()));
    }
    return of(real_binary(context, sign, a.number(), b.number()));
  }
  const bool both_texts = a.is_text() && b.is_text();
  const bool both_lists = a.is_list() && b.is_list() && a.list->is_tuple == b.list->is_tuple;
  if (sign == "+" && (both_texts || both_lists)) return joined(context, a, b);
  if (sign == "*" && (a.is_text() || a.is_list()) && b.is_whole()) {
    return repeated(context, a, b.whole());
  }
  if (sign == "*" && (b.is_text() || b.is_list()) && a.is_whole()) {
    return repeated(context, b, a.whole());
  }
  const auto plain = [](const Value& value) {  // "a text" is "string" next to an operator
    if (value.is_text()) return std::string_view("string");
    const std::string_view name = type_name(value);
    return name.substr(name.find(' ') + 1);
  };
  if (sign == "+" && (a.is_text() || b.is_text())) {
    context.wrong("cannot concatenate ", plain(a), " and ", plain(b));
  }
  context.wrong("cannot compute ", plain(a), " ", sign, " ", plain(b));
}

bool less(Context& context, const Value& a, const Value& b) {
  context.step();
  return order(context, context.defined(a), context.defined(b), 0) < 0;
}

bool compare(Context& context, std::string_view sign, const Value& a, const Value& b) {
  if (sign == "==") return equal(context, a, b);
  if (sign == "!=") return !equal(context, a, b);
  if (sign == "in") return contains(context, b, a);
  if (sign == "not in") return !contains(context, b, a);
  context.defined(a);
  context.defined(b);
  const bool is_nan = (a.type == Value::Type::real && std::isnan(a.real)) ||
                      (b.type == Value::Type::real && std::isnan(b.real));
  const int ordered = order(context, a, b, 0);
  if (is_nan) return false;
  if (sign == "<") return ordered < 0;
  if (sign == "<=") return ordered <= 0;
  return sign == ">" ? ordered > 0 : ordered >= 0;
}

Value attribute(Context& context, const Value& value, std::string_view name) {
  context.defined(value);
  if (value.is(Value::Type::loop)) return loop_attribute(value, name);
  if (value.is(Value::Type::name_space)) {
    for (const auto& [key, held] : value.name_space->items) {
      if (context.same(key, name)) return held;
    }
    return context.heap.undefined(name);
  }
  if (const auto method = method_of(context, value, name)) return *method;
  if (value.is_dict()) {
    if (const Value* found = value.dict->find(context, name)) return *found;
  }
  return context.heap.undefined(name);
}

Value item(Context& context, const Value& value, const Value& index) {
  context.step();
  context.defined(value);
  if (value.is_dict()) {
    if (const Value* found = value.dict->find(context, index)) return *found;
    if (!index.is_text()) return context.heap.undefined(to_text(context, index).bytes());
    const auto method = method_of(context, value, index.bytes());
    return method ? *method : context.heap.undefined(index.bytes());
  }
  if (index.is_whole() && (value.is_list() || value.is_text())) {
    const std::int64_t size = length(context, value);
    const std::int64_t at = index.whole() < 0 ? index.whole() + size : index.whole();
    if (at < 0 || at >= size) return context.heap.undefined("an element that is not there");
    if (value.is_list()) return value.list->items[static_cast<std::size_t>(at)];
    return slice(context, value, of(at), of(at + 1), none_value());
  }
  if (index.is_text()) return attribute(context, value, index.bytes());
  return context.heap.undefined("an element that is not there");
}

Value slice(Context& context, const Value& value, const Value& from, const Value& to,
            const Value& step) {
  context.defined(value);
  if (!value.is_list() && !value.is_text()) context.wrong("[:] of ", type_name(value));
  const std::vector<std::size_t> starts =
      value.is_text() ? character_starts(value.bytes()) : std::vector<std::size_t>();
  const std::int64_t size =
      value.is_text() ? std::ssize(starts) - 1 : std::ssize(value.list->items);
  const Bounds bounds = bounds_of(context, size, from, to, step);
  context.step_over(4 * static_cast<std::size_t>(size + bounds.count));
  Text text;
  std::vector<Value> items;
  for (std::int64_t i = 0; i < bounds.count; ++i) {
    const auto at = static_cast<std::size_t>(bounds.from + i * bounds.step);
    if (value.is_list()) {
      items.push_back(value.list->items[at]);
    } else {
      text.append(value.text->slice(starts[at], starts[at + 1] - starts[at]));
    }
  }
  if (value.is_text()) return context.heap.text(std::move(text));
  return context.heap.list(std::move(items), value.list->is_tuple);
}

std::int64_t length(Context& context, const Value& value) {
  switch (value.type) {
    case Value::Type::undefined:
      return 0;
    case Value::Type::text:
      context.step_over(value.bytes().size());
      return static_cast<std::int64_t>(count_characters(value.bytes()));
    case Value::Type::list:
      return std::ssize(value.list->items);
    case Value::Type::dict:
      return std::ssize(value.dict->items);
    case Value::Type::loop:
      return std::ssize(*value.loop->items);
    default:
      context.wrong(type_name(value), " has no length");
  }
}

std::vector<Value> elements(Context& context, const Value& value) {
  std::vector<Value> items;
  switch (value.type) {
    case Value::Type::undefined:
      break;
    case Value::Type::list:
      items = value.list->items;
      break;
    case Value::Type::dict:
      for (const auto& entry : value.dict->items) items.push_back(entry.first);
      break;
    case Value::Type::text: {
      const std::vector<std::size_t> starts = character_starts(value.bytes());
      for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
        items.push_back(context.heap.text(value.text->slice(starts[i], starts[i + 1] - starts[i])));
      }
      break;
    }
    default:
      context.wrong("cannot loop over ", type_name(value));
  }
  context.step(std::ssize(items));
  return items;
}

namespace {

using Type = Value::Type;

// Jinja's tests, `x is NAME`, that only look at the value.
struct SimpleTest {
  std::string_view name;
  bool (*test)(const Value&);
};
constexpr SimpleTest kSimpleTests[] = {
    {"defined", [](const Value& v) { return !v.is_undefined(); }},
    {"undefined", [](const Value& v) { return v.is_undefined(); }},
    {"none", [](const Value& v) { return v.is_none(); }},
    {"boolean", [](const Value& v) { return v.is_boolean(); }},
    {"true", [](const Value& v) { return v.is_boolean() && v.boolean; }},
    {"false", [](const Value& v) { return v.is_boolean() && !v.boolean; }},
    {"integer", [](const Value& v) { return v.is(Type::integer); }},
    {"float", [](const Value& v) { return v.is(Type::real); }},
    {"number", [](const Value& v) { return v.is_number(); }},
    {"string", [](const Value& v) { return v.is_text(); }},
    {"mapping", [](const Value& v) { return v.is_dict(); }},
    {"sequence",
     [](const Value& v) { return v.is_text() || v.is_list() || v.is_dict() || v.is_undefined(); }},
    {"iterable",
     [](const Value& v) {
       return v.is_text() || v.is_list() || v.is_dict() || v.is_undefined() || v.is(Type::loop);
     }},
    {"callable",
     [](const Value& v) {
       return v.is(Type::macro) || v.is(Type::function) || v.is(Type::method);
     }},
    {"escaped", [](const Value& v) { return v.is_text() && v.text->safe; }}};

// Tests that are operators: `x is lt(y)` is x < y.
constexpr std::pair<std::string_view, std::string_view> kComparisons[] = {
    {"in", "in"},         {"eq", "=="}, {"==", "=="}, {"equalto", "=="},
    {"ne", "!="},         {"!=", "!="}, {"lt", "<"},  {"lessthan", "<"},
    {"<", "<"},           {"le", "<="}, {"<=", "<="}, {"gt", ">"},
    {"greaterthan", ">"}, {">", ">"},   {"ge", ">="}, {">=", ">="}};

}  // namespace

bool apply_test(Context& context, std::string_view name, const Value& value,
                const Arguments& arguments) {
  const auto* simple = std::ranges::find(kSimpleTests, name, &SimpleTest::name);
  const auto* comparison =
      std::ranges::find(kComparisons, name, &std::pair<std::string_view, std::string_view>::first);
  const bool is_simple = simple != std::end(kSimpleTests);
  const bool is_comparison = comparison != std::end(kComparisons);
  const bool is_case = name == "upper" || name == "lower",
             is_parity = name == "odd" || name == "even";
  const bool is_other = name == "divisibleby" || name == "sameas";
  if (!is_simple && !is_comparison && !is_case && !is_parity && !is_other) {
    context.wrong("the test 'is ", printable(name), "' is not supported");
  }
  const std::size_t expected = is_comparison || is_other ? 1 : 0;
  if (arguments.values.size() != expected || !arguments.named.empty()) {
    context.wrong("the test 'is ", name, "' takes ", expected, " arguments");
  }
  context.step();
  if (is_simple) return simple->test(value);
  if (is_case) {
    const Value text = context.heap.text(to_text(context, value));
    return truth(call_method(context, {text, name == "upper" ? "isupper" : "islower"}, {}));
  }
  if (is_parity) {
    const Value rest = binary(context, "%", value, of(std::int64_t{2}));
    return equal(context, rest, of(std::int64_t{name == "odd" ? 1 : 0}));
  }
  const Value& other = arguments.values[0];
  if (is_comparison) return compare(context, comparison->second, value, other);
  if (name == "sameas") return value.type == other.type && equal(context, value, other);
  return !truth(binary(context, "%", value, other));
}

}  // namespace leq::jinja
