// Jinja's filters, and those that model repositories rely on (tojson).
#include <utf8proc.h>
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "chat/jinja/interpreter.h"

namespace leq::jinja {
namespace {

using Values = const Arguments&;
using Name = std::string_view;  // the filter's name, where filters share a function

Value as_text(Context& context, const Value& value) {
  return value.is_text() ? value : context.heap.text(to_text(context, value));
}

Value trim(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "trim", 1, {"chars"});
  const auto characters = arguments.get(0, "chars");
  const Text text = to_text(context, value);
  if (!characters || characters->is_none())
    return context.heap.text(stripped(context, text, Ends::both));
  return context.heap.text(
      stripped(context, text, Ends::both, context.text_of(*characters, "what trim takes off")));
}

Value cased(Context& context, const Value& value, Values arguments, Name how) {
  arguments.check(context, how, 0);
  return context.heap.text(Text::foreign(changed_case(to_text(context, value).bytes(), how)));
}

// Words begin after white space and these; unlike in Python's title(), not after an apostrophe.
Value title(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "title", 0);
  const Text whole = to_text(context, value);
  std::string_view text = whole.bytes();
  constexpr std::string_view kBegin = "-({[<";
  std::string out;
  bool begins = true;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text), 1);
    const std::string_view character = text.substr(0, length);
    out += changed_case(character, begins ? "upper" : "lower");
    const bool is_mark = length == 1 && kBegin.find(character[0]) != std::string_view::npos;
    begins = is_mark || leading_space(character) == length;
    text.remove_prefix(length);
  }
  return context.heap.text(Text::foreign(out));
}

// Like Python's \w: letters, numbers and the underscore.
bool is_word_character(std::string_view character) {
  if (character == "_") return true;
  if (utf8_length(character) == 0) return false;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(decode_utf8(character)));
  return (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) ||
         (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO);
}

// Counts runs of letters, digits and underscores.
Value wordcount(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "wordcount", 0);
  const Text whole = to_text(context, value);
  std::string_view text = whole.bytes();
  context.step_over(8 * text.size());
  std::int64_t words = 0;
  bool in_word = false;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text), 1);
    const bool is_word = is_word_character(text.substr(0, length));
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
    text.remove_prefix(length);
  }
  return of(words);
}

// The filter format, as in "%s and %s"|format(a, b).
Value format(Context& context, const Value& value, Values arguments, Name) {
  if (!arguments.named.empty()) context.wrong("the filter format with names is not supported");
  return binary(context, "%", as_text(context, value), context.heap.tuple(arguments.values));
}

Value length_filter(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "length", 0);
  return of(length(context, value));
}

Value default_filter(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "default", 2, {"default_value", "boolean"});
  const auto fallback = arguments.get(0, "default_value");
  const auto boolean = arguments.get(1, "boolean");
  const bool takes = value.is_undefined() || (boolean && truth(*boolean) && !truth(value));
  if (!takes) return value;
  return fallback ? *fallback : context.heap.text({});
}

Value tojson(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "tojson", 4, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  if (const auto ascii = arguments.get(0, "ensure_ascii")) style.ascii = truth(*ascii);
  if (const auto sorted = arguments.get(3, "sort_keys")) style.sorted = truth(*sorted);
  if (const auto indent = arguments.get(1, "indent"); indent && !indent->is_none()) {
    style.indent = indent->is_text()
                       ? std::string(indent->bytes())
                       : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                         context.whole_of(*indent, "tojson's indent"), 0, 1000)),
                                     ' ');
    style.comma = ",";
  }
  if (const auto marks = arguments.get(2, "separators"); marks && !marks->is_none()) {
    if (!marks->is_list() || marks->list->items.size() != 2)
      context.wrong("tojson expects two separators");
    style.comma = context.text_of(marks->list->items[0], "tojson's separator");
    style.colon = context.text_of(marks->list->items[1], "tojson's separator");
  }
  return context.heap.text(Text::foreign(to_json(context, value, style)));
}

Value join(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "join", 2, {"d", "attribute"});
  const auto between = arguments.get(0, "d");
  const auto path = arguments.get(1, "attribute");
  const Text mark = between ? to_text(context, *between) : Text();
  Text out;
  bool more = false;
  for (const Value& element : elements(context, value)) {
    if (more) out.append(mark);
    more = true;
    out.append(to_text(context, path ? path_attribute(context, element, *path) : element));
    context.check_size(out.size());
  }
  return context.heap.text(std::move(out));
}

Value string(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "string", 0);
  return as_text(context, value);
}

Value safe(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "safe", 0);
  Text text = to_text(context, value);
  text.safe = true;
  return context.heap.text(std::move(text));
}

Value escape(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "escape", 0);
  const Text text = to_text(context, value);
  return text.safe ? value : context.heap.text(escaped(context, text));
}

Value list(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "list", 0);
  return context.heap.list(elements(context, value));
}

Value items(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "items", 0);
  std::vector<Value> pairs;
  if (!value.is_undefined()) {
    if (!value.is_dict()) context.wrong("items of ", type_name(value), ", expected a dict");
    for (const auto& entry : value.dict->items) {
      pairs.push_back(context.heap.tuple({entry.first, entry.second}));
    }
  }
  return context.heap.list(std::move(pairs));
}

Value dictsort(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "dictsort", 3, {"case_sensitive", "by", "reverse"});
  const auto with_case = arguments.get(0, "case_sensitive"), by = arguments.get(1, "by"),
             reverse = arguments.get(2, "reverse");
  const bool by_value = by && by->is_text() && by->bytes() == "value";
  if (!context.defined(value).is_dict()) context.wrong("dictsort of ", type_name(value));
  auto pairs = value.dict->items;
  const auto key = [&](const std::pair<Value, Value>& entry) {
    return sort_key(context, by_value ? entry.second : entry.first, with_case && truth(*with_case));
  };
  const bool backwards = reverse && truth(*reverse);
  std::ranges::stable_sort(pairs, [&](const auto& a, const auto& b) {
    return backwards ? less(context, key(b), key(a)) : less(context, key(a), key(b));
  });
  std::vector<Value> sorted;
  for (const auto& entry : pairs) sorted.push_back(context.heap.tuple({entry.first, entry.second}));
  return context.heap.list(std::move(sorted));
}

Value sort(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "sort", 3, {"reverse", "case_sensitive", "attribute"});
  const auto reverse = arguments.get(0, "reverse"), with_case = arguments.get(1, "case_sensitive"),
             path = arguments.get(2, "attribute");
  struct Keyed {
    Value key, value;
  };
  std::vector<Keyed> keyed;
  for (const Value& element : elements(context, value)) {
    const Value by = path ? path_attribute(context, element, *path) : element;
    keyed.push_back({sort_key(context, by, with_case && truth(*with_case)), element});
  }
  const bool backwards = reverse && truth(*reverse);
  std::ranges::stable_sort(keyed, [&](const Keyed& a, const Keyed& b) {
    return backwards ? less(context, b.key, a.key) : less(context, a.key, b.key);
  });
  std::vector<Value> sorted;
  for (const Keyed& one : keyed) sorted.push_back(one.value);
  return context.heap.list(std::move(sorted));
}

Value unique(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "unique", 2, {"case_sensitive", "attribute"});
  const auto with_case = arguments.get(0, "case_sensitive"), path = arguments.get(1, "attribute");
  std::vector<Value> seen, kept;
  for (const Value& element : elements(context, value)) {
    const Value by = path ? path_attribute(context, element, *path) : element;
    const Value key = sort_key(context, by, with_case && truth(*with_case));
    const auto is_key = [&](const Value& other) { return equal(context, other, key); };
    if (std::ranges::any_of(seen, is_key)) continue;
    seen.push_back(key);
    kept.push_back(element);
  }
  return context.heap.list(std::move(kept));
}

Value extreme(Context& context, const Value& value, Values arguments, Name name) {
  arguments.check(context, "min and max", 2, {"case_sensitive", "attribute"});
  const auto with_case = arguments.get(0, "case_sensitive"), path = arguments.get(1, "attribute");
  std::optional<Value> best, best_key;
  for (const Value& element : elements(context, value)) {
    const Value by = path ? path_attribute(context, element, *path) : element;
    const Value key = sort_key(context, by, with_case && truth(*with_case));
    const bool better =
        !best || (name == "max" ? less(context, *best_key, key) : less(context, key, *best_key));
    if (!better) continue;
    best = element;
    best_key = key;
  }
  return best ? *best : context.heap.undefined("an element of nothing");
}

Value sum(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "sum", 2, {"attribute", "start"});
  const auto path = arguments.get(0, "attribute"), start = arguments.get(1, "start");
  Value total = start ? *start : of(std::int64_t{0});
  for (const Value& element : elements(context, value)) {
    total = binary(context, "+", total, path ? path_attribute(context, element, *path) : element);
  }
  return total;
}

Value end_of(Context& context, const Value& value, Values arguments, Name name) {
  arguments.check(context, "first and last", 0);
  const std::vector<Value> all = elements(context, value);
  if (all.empty()) return context.heap.undefined("an element of nothing");
  return name == "last" ? all.back() : all.front();
}

Value reverse(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "reverse", 0);
  if (value.is_text()) {
    Value back = none_value();
    return slice(context, value, back, back, of(std::int64_t{-1}));
  }
  std::vector<Value> all = elements(context, value);
  std::ranges::reverse(all);
  return context.heap.list(std::move(all));
}

Value replace(Context& context, const Value& value, Values arguments, Name) {
  const BoundMethod method = {as_text(context, value), "replace"};
  Arguments texts;
  for (const Value& argument : arguments.values) {
    texts.values.push_back(argument.is_number() ? argument : as_text(context, argument));
  }
  texts.named = arguments.named;
  return call_method(context, method, texts);
}

Value abs(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "abs", 0);
  if (!context.defined(value).is_number()) context.wrong("abs of ", type_name(value));
  if (!value.is_whole()) return of(std::fabs(value.real));
  return value.whole() < 0 ? binary(context, "-", of(std::int64_t{0}), value) : of(value.whole());
}

Value int_filter(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "int", 1, {"default"});
  context.defined(value);
  const Value fallback = arguments.get(0, "default").value_or(of(std::int64_t{0}));
  if (value.is_whole()) return of(value.whole());
  std::optional<double> number;
  if (value.is(Value::Type::real)) number = value.real;
  if (value.is_text()) {
    const auto text = leq::trim(value.bytes());
    if (const auto whole = parse_int(text)) return of(*whole);
    number = parse_double(text);
  }
  if (!number || !(std::fabs(*number) < 0x1p63)) return fallback;
  return of(static_cast<std::int64_t>(*number));
}

Value float_filter(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "float", 1, {"default"});
  context.defined(value);
  if (value.is_number()) return of(value.number());
  if (value.is_text()) {
    if (const auto number = parse_double(leq::trim(value.bytes()))) return of(*number);
  }
  return arguments.get(0, "default").value_or(of(0.0));
}

// A number with so many decimals (or zeros before the point, if negative) as Python rounds it: to
// the nearest one of its exact value, at equal distances to the even digit.
std::int64_t rounded(Context& context, std::int64_t value, std::int64_t decimals) {
  if (decimals >= 0) return value;
  if (decimals < -19) return 0;
  std::uint64_t unit = 1;
  for (; decimals < 0; ++decimals) unit *= 10;
  const auto bits = static_cast<std::uint64_t>(value);
  const std::uint64_t size = value < 0 ? 0 - bits : bits, rest = size % unit;
  const bool is_up = rest > unit - rest || (rest == unit - rest && size / unit % 2 == 1);
  const std::uint64_t result = size - rest + (is_up ? unit : 0);
  if (!std::in_range<std::int64_t>(result)) context.wrong("a number that is too large");
  return value < 0 ? -static_cast<std::int64_t>(result) : static_cast<std::int64_t>(result);
}

double rounded(double value, std::int64_t decimals) {
  constexpr std::int64_t kAll = 323;  // a number rounded to more decimals is itself
  if (!std::isfinite(value) || decimals > kAll) return value;
  if (decimals < 0) {  // exact up to 22 zeros, which is more than a number has digits
    const double unit = std::pow(10.0, -static_cast<double>(decimals));
    if (std::isinf(unit)) return std::copysign(0.0, value);
    return std::fabs(value) / unit < 0x1p53 ? std::nearbyint(value / unit) * unit : value;
  }
  return *parse_double(fixed(value, static_cast<int>(decimals)));
}

Value round(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "round", 2, {"precision", "method"});
  if (!context.defined(value).is_number()) context.wrong("round of ", type_name(value));
  const auto digits = arguments.get(0, "precision"), method = arguments.get(1, "method");
  const std::int64_t places = digits ? context.whole_of(*digits, "round's precision") : 0;
  const std::string_view how = method ? context.text_of(*method, "round's method") : "common";
  if (how != "common" && how != "ceil" && how != "floor") {
    context.wrong("round does not know the method ", printable(how));
  }
  if (how == "common" && value.is_whole()) return of(rounded(context, value.whole(), places));
  double result = 0;
  if (how == "common") {
    result = rounded(value.number(), places);
  } else {
    const double unit = std::pow(10.0, static_cast<double>(places));
    const double scaled = value.number() * unit;
    result = (how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
  }
  if (std::isfinite(value.number()) && !std::isfinite(result)) {
    context.wrong("a number that is too large");
  }
  return of(result);
}

Value indent(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "indent", 3, {"width", "first", "blank"});
  const auto width = arguments.get(0, "width"), first = arguments.get(1, "first"),
             blank = arguments.get(2, "blank");
  const Text margin =
      width && width->is_text()
          ? *width->text
          : Text::own(
                std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                width ? context.whole_of(*width, "indent's width") : 4, 0, 1000)),
                            ' '));
  Text text = to_text(context, value);
  text.append(Text::own("\n"));  // so that a final line end counts, as in Jinja
  Text out;
  const std::vector<Value> lines = split_lines(context, text, false);
  for (const Value& one : lines) {
    const Text& line = *one.text;
    const bool is_first = &one == lines.data();
    if (!is_first) out.append(Text::own("\n"));
    const bool indents =
        is_first ? first && truth(*first) : !line.empty() || (blank && truth(*blank));
    if (indents) out.append(margin);
    out.append(line);
    context.check_size(out.size());
  }
  return context.heap.text(std::move(out));
}

// The filters map, select, reject, selectattr and rejectattr.
Value map(Context& context, const Value& value, Values arguments, Name) {
  std::vector<Value> out;
  if (arguments.values.empty()) {
    const auto path = arguments.get(0, "attribute"), fallback = arguments.get(1, "default");
    arguments.check(context, "map", 0, {"attribute", "default"});
    if (!path) context.wrong("map expects a filter or an attribute");
    for (const Value& element : elements(context, value)) {
      const Value found = path_attribute(context, element, *path);
      out.push_back(found.is_undefined() && fallback ? *fallback : found);
    }
    return context.heap.list(std::move(out));
  }
  Arguments rest = {{arguments.values.begin() + 1, arguments.values.end()}, arguments.named};
  const auto name = context.text_of(arguments.values[0], "map's filter");
  for (const Value& element : elements(context, value)) {
    out.push_back(apply_filter(context, name, element, rest));
  }
  return context.heap.list(std::move(out));
}

Value chosen(Context& context, const Value& value, Values arguments, Name name) {
  const bool wanted = name.starts_with("select"), by_path = name.ends_with("attr");
  const std::size_t first = by_path ? 1 : 0;
  if (arguments.values.size() < first) context.wrong("selectattr expects an attribute");
  std::vector<Value> out;
  Arguments rest;
  std::string_view test;
  if (arguments.values.size() > first) {
    test = context.text_of(arguments.values[first], "a test");
    rest = {
        {arguments.values.begin() + static_cast<std::ptrdiff_t>(first) + 1, arguments.values.end()},
        arguments.named};
  }
  for (const Value& element : elements(context, value)) {
    const Value looked = by_path ? path_attribute(context, element, arguments.values[0]) : element;
    const bool is = test.empty() ? truth(looked) : apply_test(context, test, looked, rest);
    if (is == wanted) out.push_back(element);
  }
  return context.heap.list(std::move(out));
}

Value attr(Context& context, const Value& value, Values arguments, Name) {
  arguments.check(context, "attr", 1, {"name"});
  const auto name = arguments.get(0, "name");
  if (!name) context.wrong("attr expects a name");
  const auto method =
      method_of(context, context.defined(value), context.text_of(*name, "attr's name"));
  return method ? *method : context.heap.undefined(name->bytes());
}

struct Filter {
  Name name;
  Value (*function)(Context&, const Value&, Values, Name name);
};
constexpr Filter kFilters[] = {{"abs", abs},
                               {"attr", attr},
                               {"capitalize", cased},
                               {"count", length_filter},
                               {"d", default_filter},
                               {"default", default_filter},
                               {"dictsort", dictsort},
                               {"e", escape},
                               {"escape", escape},
                               {"first", end_of},
                               {"float", float_filter},
                               {"format", format},
                               {"indent", indent},
                               {"int", int_filter},
                               {"items", items},
                               {"join", join},
                               {"last", end_of},
                               {"length", length_filter},
                               {"list", list},
                               {"lower", cased},
                               {"map", map},
                               {"max", extreme},
                               {"min", extreme},
                               {"reject", chosen},
                               {"rejectattr", chosen},
                               {"replace", replace},
                               {"reverse", reverse},
                               {"round", round},
                               {"safe", safe},
                               {"select", chosen},
                               {"selectattr", chosen},
                               {"sort", sort},
                               {"string", string},
                               {"sum", sum},
                               {"title", title},
                               {"tojson", tojson},
                               {"trim", trim},
                               {"unique", unique},
                               {"upper", cased},
                               {"wordcount", wordcount}};

}  // namespace

Value sort_key(Context& context, const Value& value, bool with_case) {
  if (with_case || !value.is_text()) return value;
  return context.heap.text(Text::foreign(changed_case(value.bytes(), "lower")));
}

Value path_attribute(Context& context, Value value, const Value& path) {
  if (path.is_whole()) return item(context, value, path);
  const auto parts = context.text_of(path, "an attribute");
  context.step_over(parts.size());
  for (const std::string_view part : leq::split(parts, ".")) {
    const auto number = parse_int(part);
    value = item(context, value, number ? of(*number) : context.heap.text(Text::foreign(part)));
  }
  return value;
}

Value apply_filter(Context& context, std::string_view name, const Value& value,
                   const Arguments& arguments) {
  const auto found = std::ranges::find(kFilters, name, &Filter::name);
  if (found == std::end(kFilters))
    context.wrong("the filter ", printable(name), " is not supported");
  context.step_over(value.is_text() ? 64 + value.bytes().size() : 64);
  return found->function(context, value, arguments, found->name);
}

}  // namespace leq::jinja
