// Jinja's tests: `x is NAME`.
#include <algorithm>
#include <array>

#include "base/text.h"
#include "chat/jinja/context.h"

namespace leq::jinja {
namespace {

using Type = Value::Type;
using Test = bool (*)(Context&, const Value&, const Value& other);

bool is_mapping(const Value& value) { return value.is_dict(); }
bool is_sequence(const Value& value) {
  return value.is_text() || value.is_list() || value.is_dict() || value.is_undefined();
}

struct NamedTest {
  std::string_view name;
  std::size_t arguments;
  Test test;
};

template <bool (*Is)(const Value&)>
bool simple(Context&, const Value& value, const Value&) {
  return Is(value);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is_boolean(); }
bool is_true(const Value& value) { return value.is_boolean() && value.boolean; }
bool is_false(const Value& value) { return value.is_boolean() && !value.boolean; }
bool is_integer(const Value& value) { return value.is(Type::integer); }
bool is_float(const Value& value) { return value.is(Type::real); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_text(); }
bool is_iterable(const Value& value) { return is_sequence(value) || value.is(Type::loop); }
bool is_callable(const Value& value) {
  return value.is(Type::macro) || value.is(Type::function) || value.is(Type::method);
}
bool is_escaped(const Value& value) { return value.is_text() && value.text->safe; }

bool is_upper(Context& context, const Value& value, const Value&) {
  return truth(call_method(context, {context.heap.text(to_text(context, value)), "isupper"}, {}));
}
bool is_lower(Context& context, const Value& value, const Value&) {
  return truth(call_method(context, {context.heap.text(to_text(context, value)), "islower"}, {}));
}
bool is_odd(Context& context, const Value& value, const Value&) {
  return truth(binary(context, "%", value, of(std::int64_t{2})));
}
bool is_even(Context& context, const Value& value, const Value& other) {
  return !is_odd(context, value, other);
}
bool is_divisible(Context& context, const Value& value, const Value& other) {
  return !truth(binary(context, "%", value, other));
}
bool is_same(Context&, const Value& value, const Value& other) {
  return value.type == other.type && equal(value, other);
}
bool is_in(Context& c, const Value& value, const Value& other) {
  return compare(c, "in", value, other);
}
bool is_equal(Context&, const Value& value, const Value& other) { return equal(value, other); }
bool is_unequal(Context&, const Value& value, const Value& other) { return !equal(value, other); }
bool is_less(Context& c, const Value& value, const Value& other) {
  return compare(c, "<", value, other);
}
bool is_at_most(Context& c, const Value& value, const Value& other) {
  return compare(c, "<=", value, other);
}
bool is_more(Context& c, const Value& value, const Value& other) {
  return compare(c, ">", value, other);
}
bool is_at_least(Context& c, const Value& value, const Value& other) {
  return compare(c, ">=", value, other);
}

constexpr std::array kTests = {NamedTest{"defined", 0, simple<is_defined>},
                               NamedTest{"undefined", 0, simple<is_undefined>},
                               NamedTest{"none", 0, simple<is_none>},
                               NamedTest{"boolean", 0, simple<is_boolean>},
                               NamedTest{"true", 0, simple<is_true>},
                               NamedTest{"false", 0, simple<is_false>},
                               NamedTest{"integer", 0, simple<is_integer>},
                               NamedTest{"float", 0, simple<is_float>},
                               NamedTest{"number", 0, simple<is_number>},
                               NamedTest{"string", 0, simple<is_string>},
                               NamedTest{"mapping", 0, simple<is_mapping>},
                               NamedTest{"sequence", 0, simple<is_sequence>},
                               NamedTest{"iterable", 0, simple<is_iterable>},
                               NamedTest{"callable", 0, simple<is_callable>},
                               NamedTest{"escaped", 0, simple<is_escaped>},
                               NamedTest{"upper", 0, is_upper},
                               NamedTest{"lower", 0, is_lower},
                               NamedTest{"odd", 0, is_odd},
                               NamedTest{"even", 0, is_even},
                               NamedTest{"divisibleby", 1, is_divisible},
                               NamedTest{"sameas", 1, is_same},
                               NamedTest{"in", 1, is_in},
                               NamedTest{"eq", 1, is_equal},
                               NamedTest{"==", 1, is_equal},
                               NamedTest{"equalto", 1, is_equal},
                               NamedTest{"ne", 1, is_unequal},
                               NamedTest{"!=", 1, is_unequal},
                               NamedTest{"lt", 1, is_less},
                               NamedTest{"lessthan", 1, is_less},
                               NamedTest{"<", 1, is_less},
                               NamedTest{"le", 1, is_at_most},
                               NamedTest{"<=", 1, is_at_most},
                               NamedTest{"gt", 1, is_more},
                               NamedTest{"greaterthan", 1, is_more},
                               NamedTest{">", 1, is_more},
                               NamedTest{"ge", 1, is_at_least},
                               NamedTest{">=", 1, is_at_least}};

}  // namespace

bool apply_test(Context& context, std::string_view name, const Value& value,
                const Arguments& arguments) {
  const auto found = std::ranges::find(kTests, name, &NamedTest::name);
  if (found == kTests.end()) context.wrong("the test 'is ", printable(name), "' is not supported");
  if (arguments.values.size() != found->arguments || !arguments.named.empty()) {
    context.wrong("the test 'is ", name, "' takes ", found->arguments, " arguments");
  }
  context.step();
  return found->test(context, value, arguments.values.empty() ? Value{} : arguments.values[0]);
}

}  // namespace leq::jinja
