// Methods of texts, lists and dicts. Methods that modify a value do not exist, as in Jinja's
// immutable sandbox.
#include "chat/jinja/interpreter.h"

#include <utf8proc.h>
#include <algorithm>
#include <span>

#include "base/text.h"

namespace leq::jinja {
namespace {

using Values = const Arguments&;
using Name = std::string_view;  // the method's name, where methods share a function

Value strip(Context& context, const Value& self, Values arguments, Name name) {
  arguments.check(context, "strip", 1);
  const Ends ends = name == "strip" ? Ends::both : name == "lstrip" ? Ends::left : Ends::right;
  const auto characters = arguments.get(0, "chars");
  if (!characters || characters->is_none())
    return context.heap.text(stripped(context, *self.text, ends));
  return context.heap.text(
      stripped(context, *self.text, ends, context.text_of(*characters, "what strip() takes off")));
}

Value list_of(Context& context, std::vector<Value> items) {
  context.step(std::ssize(items));
  return context.heap.list(std::move(items));
}

Value split_text(Context& context, const Value& self, Values arguments, Name name) {
  const bool from_right = name == "rsplit";
  arguments.check(context, "split", 2, {"sep", "maxsplit"});
  const auto separator = arguments.get(0, "sep");
  const auto limit = arguments.get(1, "maxsplit");
  const std::int64_t most = limit ? context.whole_of(*limit, "split()'s limit") : -1;
  if (!separator || separator->is_none()) {
    if (from_right && most >= 0) context.wrong("rsplit() at white space is not supported");
    return list_of(context, split_space(context, *self.text, most));
  }
  const auto at = context.text_of(*separator, "split()'s separator");
  if (at.empty()) context.wrong("split() with an empty separator");
  return list_of(context, from_right ? split_right(context, *self.text, at, most)
                                     : split(context, *self.text, at, most));
}

Value splitlines(Context& context, const Value& self, Values arguments, Name) {
  arguments.check(context, "splitlines", 1, {"keepends"});
  const auto keep = arguments.get(0, "keepends");
  return list_of(context, split_lines(context, *self.text, keep && truth(*keep)));
}

Value replace(Context& context, const Value& self, Values arguments, Name) {
  arguments.check(context, "replace", 3, {"count"});
  const auto from = arguments.get(0, ""), to = arguments.get(1, ""),
             count = arguments.get(2, "count");
  if (!from || !to) context.wrong("replace() expects two texts");
  (void)context.text_of(*from, "what replace() looks for");
  (void)context.text_of(*to, "what replace() puts there");
  const std::int64_t most = count ? context.whole_of(*count, "replace()'s count") : -1;
  return context.heap.text(replaced(context, *self.text, *from->text, *to->text, most));
}

Value affix(Context& context, const Value& self, Values arguments, Name name) {
  arguments.check(context, name, 1);
  const auto wanted = arguments.get(0, "");
  if (!wanted) context.wrong("startswith() and endswith() want a text");
  const auto all = wanted->is_list() ? std::span(wanted->list->items) : std::span(&*wanted, 1);
  return of(std::ranges::any_of(all, [&](const Value& one) {
    const auto text = context.text_of(one, "what startswith() and endswith() look for");
    const std::size_t size = std::min(text.size(), self.bytes().size());
    const std::size_t from = name == "endswith" ? self.bytes().size() - size : 0;
    return context.same(self.bytes().substr(from, size), text);
  }));
}

Value without_affix(Context& context, const Value& self, Values arguments, Name name) {
  arguments.check(context, "removeprefix", 1);
  const auto wanted = arguments.get(0, "");
  if (!wanted) context.wrong("removeprefix() and removesuffix() want a text");
  const auto text = context.text_of(*wanted, "what removeprefix() takes off");
  const bool at_end = name == "removesuffix";
  const bool there = at_end ? self.bytes().ends_with(text) : self.bytes().starts_with(text);
  if (!there) return self;
  return context.heap.text(
      self.text->slice(at_end ? 0 : text.size(), self.text->size() - text.size()));
}

Value cased(Context& context, const Value& self, Values arguments, Name name) {
  arguments.check(context, name, 0);
  return context.heap.text(Text::foreign(changed_case(self.bytes(), name)));
}

Value find(Context& context, const Value& self, Values arguments, Name name) {
  arguments.check(context, "find", 1);
  const auto wanted = arguments.get(0, "");
  if (!wanted) context.wrong("find() expects a text");
  const auto text = context.text_of(*wanted, "what find() looks for");
  const std::size_t at =
      name == "rfind" ? context.find_last(self.bytes(), text) : context.find(self.bytes(), text);
  if (at == std::string_view::npos) return of(std::int64_t{-1});
  return of(static_cast<std::int64_t>(count_characters(self.bytes().substr(0, at))));
}

Value count(Context& context, const Value& self, Values arguments, Name) {
  arguments.check(context, "count", 1);
  const auto wanted = arguments.get(0, "");
  if (!wanted) context.wrong("count() expects a value");
  if (self.is_list()) {
    return of(static_cast<std::int64_t>(std::ranges::count_if(
        self.list->items, [&](const Value& item) { return equal(context, item, *wanted); })));
  }
  const auto text = context.text_of(*wanted, "what count() counts");
  if (text.empty()) return of(static_cast<std::int64_t>(count_characters(self.bytes())) + 1);
  std::int64_t places = 0;
  std::string_view rest = self.bytes();
  for (std::size_t at = 0; (at = context.find(rest, text)) != std::string_view::npos; ++places) {
    rest.remove_prefix(at + text.size());
  }
  return of(places);
}

Value join(Context& context, const Value& self, Values arguments, Name) {
  arguments.check(context, "join", 1);
  const auto parts = arguments.get(0, "");
  if (!parts) context.wrong("join() expects a list");
  Text out;
  bool more = false;
  for (const Value& part : elements(context, *parts)) {
    (void)context.text_of(part, "what join() joins");
    if (more) out.append(*self.text);
    more = true;
    out.append(*part.text);
    context.check_size(out.size());
  }
  return context.heap.text(std::move(out));
}

// Whether the text is not empty and all its characters are of one kind.
Value is_all(Context& context, const Value& self, Values arguments, Name kind) {
  if (kind == "isnumeric" || kind == "isdecimal") kind = "isdigit";
  arguments.check(context, kind, 0);
  std::string_view rest = self.bytes();
  context.step_over(8 * rest.size());
  bool all = !rest.empty(), cased_one = false;
  while (!rest.empty()) {
    const std::size_t length = std::max<std::size_t>(utf8_length(rest), 1);
    const char32_t c = utf8_length(rest) > 0 ? decode_utf8(rest) : 0xfffd;
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    const bool letter = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
    const bool digit = category == UTF8PROC_CATEGORY_ND;
    if (kind == "isdigit") all = all && digit;
    if (kind == "isalpha") all = all && letter;
    if (kind == "isalnum") all = all && (letter || digit);
    if (kind == "isspace") all = all && leading_space(rest) > 0;
    const bool wrong_case =
        category == (kind == "isupper" ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU);
    if (kind == "isupper" || kind == "islower") all = all && !wrong_case;
    cased_one = cased_one || category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL;
    rest.remove_prefix(length);
  }
  if (kind == "isupper" || kind == "islower") all = all && cased_one;
  return of(all);
}

Value keys(Context& context, const Value& self, Values arguments, Name) {
  arguments.check(context, "keys", 0);
  return context.heap.list(elements(context, self));
}

Value values(Context& context, const Value& self, Values arguments, Name) {
  arguments.check(context, "values", 0);
  std::vector<Value> list;
  for (const auto& entry : self.dict->items) list.push_back(entry.second);
  return context.heap.list(std::move(list));
}

Value items(Context& context, const Value& self, Values arguments, Name) {
  arguments.check(context, "items", 0);
  std::vector<Value> list;
  for (const auto& entry : self.dict->items) {
    list.push_back(context.heap.tuple({entry.first, entry.second}));
  }
  context.step(std::ssize(list));
  return context.heap.list(std::move(list));
}

Value get(Context& context, const Value& self, Values arguments, Name) {
  arguments.check(context, "get", 2, {"default"});
  const auto key = arguments.get(0, "");
  if (!key) context.wrong("get() expects a key");
  if (const Value* found = self.dict->find(context, *key)) return *found;
  const auto fallback = arguments.get(1, "default");
  return fallback ? *fallback : none_value();
}

Value copy(Context& context, const Value& self, Values arguments, Name) {
  arguments.check(context, "copy", 0);
  return self;
}

Value index(Context& context, const Value& self, Values arguments, Name) {
  arguments.check(context, "index", 1);
  const auto wanted = arguments.get(0, "");
  if (!wanted) context.wrong("index() expects a value");
  const auto found = std::ranges::find_if(
      self.list->items, [&](const Value& item) { return equal(context, item, *wanted); });
  if (found == self.list->items.end()) context.wrong("index() of a value that is not in the list");
  return of(static_cast<std::int64_t>(found - self.list->items.begin()));
}

// Supports {}, {0} and {name} without conversions and formats; {{ and }} are literal brackets.
Value format(Context& context, const Value& self, Values arguments, Name) {
  const std::string_view bytes = self.bytes();
  Text out;
  std::size_t next = 0, done = 0;
  bool numbered = false;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] != '{' && bytes[at] != '}') continue;
    out.append(self.text->slice(done, at - done));
    const bool doubled = at + 1 < bytes.size() && bytes[at + 1] == bytes[at];
    if (doubled) {
      out.append(self.text->slice(at, 1));
      done = ++at + 1;
      continue;
    }
    const std::size_t end = bytes.find('}', at);
    if (bytes[at] == '}' || end == std::string_view::npos)
      context.wrong("format(): a single bracket");
    const std::string_view name = bytes.substr(at + 1, end - at - 1);
    if (name.find_first_of(".[:!{") != std::string_view::npos) {
      context.wrong("format(): {", printable(name), "} is not supported, only {}, {0} and {name}");
    }
    const auto number = name.empty()
                            ? std::optional<std::int64_t>(static_cast<std::int64_t>(next++))
                            : parse_int(name);
    numbered = numbered || (number && !name.empty());
    if (numbered && next > 0) context.wrong("format(): {} and {0} in one text");
    std::optional<Value> value;
    if (number && *number >= 0 && *number < std::ssize(arguments.values)) {
      value = arguments.values[static_cast<std::size_t>(*number)];
    }
    for (const auto& [key, held] : arguments.named) {
      if (context.same(key, name)) value = held;
    }
    if (!value) context.wrong("format(): there is no argument for {", printable(name), "}");
    out.append(to_text(context, *value));
    context.check_size(out.size());
    at = end;
    done = end + 1;
  }
  out.append(self.text->slice(done, bytes.size() - done));
  return context.heap.text(std::move(out));
}

struct Method {
  Name name;
  Value (*function)(Context&, const Value& self, Values, Name name) = nullptr;
};

constexpr Method kTextMethods[] = {{"strip", strip},
                                   {"lstrip", strip},
                                   {"rstrip", strip},
                                   {"split", split_text},
                                   {"rsplit", split_text},
                                   {"splitlines", splitlines},
                                   {"replace", replace},
                                   {"startswith", affix},
                                   {"endswith", affix},
                                   {"removeprefix", without_affix},
                                   {"removesuffix", without_affix},
                                   {"upper", cased},
                                   {"lower", cased},
                                   {"title", cased},
                                   {"capitalize", cased},
                                   {"find", find},
                                   {"rfind", find},
                                   {"count", count},
                                   {"join", join},
                                   {"isdigit", is_all},
                                   {"isnumeric", is_all},
                                   {"isdecimal", is_all},
                                   {"isalpha", is_all},
                                   {"isalnum", is_all},
                                   {"isspace", is_all},
                                   {"isupper", is_all},
                                   {"islower", is_all},
                                   {"format", format}};
constexpr Method kDictMethods[] = {
    {"keys", keys}, {"values", values}, {"items", items}, {"get", get}, {"copy", copy}};
constexpr Method kListMethods[] = {{"count", count}, {"index", index}, {"copy", copy}};

// Methods that exist in Python but are not supported.
constexpr Name kOtherTextMethods[] = {
    "casefold",     "center",      "encode",   "expandtabs", "format_map", "index",     "isascii",
    "isidentifier", "isprintable", "istitle",  "ljust",      "maketrans",  "partition", "rindex",
    "rjust",        "rpartition",  "swapcase", "translate",  "zfill"};
constexpr Name kOtherDictMethods[] = {"clear",   "fromkeys",   "pop",
                                      "popitem", "setdefault", "update"};
constexpr Name kOtherListMethods[] = {"append", "clear",  "extend",  "insert",
                                      "pop",    "remove", "reverse", "sort"};

std::optional<Method> find_method(const Value& self, Name name) {
  const auto in = [&](const auto& methods, const auto& others) -> std::optional<Method> {
    const auto* found = std::ranges::find(methods, name, &Method::name);
    if (found != std::end(methods)) return *found;
    const auto* other = std::ranges::find(others, name);
    return other == std::end(others) ? std::nullopt : std::optional(Method{*other});
  };
  if (self.is_text()) return in(kTextMethods, kOtherTextMethods);
  if (self.is_dict()) return in(kDictMethods, kOtherDictMethods);
  return self.is_list() ? in(kListMethods, kOtherListMethods) : std::nullopt;
}

}  // namespace

std::optional<Value> method_of(Context& context, const Value& self, std::string_view name) {
  const auto method = find_method(self, name);
  if (!method) return std::nullopt;
  return context.heap.method(self, method->name);
}

Value call_method(Context& context, const BoundMethod& method, const Arguments& arguments) {
  const auto found = find_method(method.self, method.name);
  if (found->function == nullptr) {
    context.wrong("the method ", method.name, "() of ", type_name(method.self),
                  " is not supported");
  }
  context.step_over(method.self.is_text() ? method.self.bytes().size() : 64);
  return found->function(context, method.self, arguments, method.name);
}

std::string changed_case(std::string_view text, std::string_view how) {
  std::string out;
  bool in_word = false;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      out += text[0];
      text.remove_prefix(1);
      in_word = false;
      continue;
    }
    const auto c = static_cast<utf8proc_int32_t>(decode_utf8(text));
    const bool begins = how == "title" ? !in_word : how == "capitalize" && out.empty();
    if (c == 0xdf && (how == "upper" || begins)) {  // ß, as in Python
      out += how == "upper" ? "SS" : "Ss";
      in_word = true;
      text.remove_prefix(length);
      continue;
    }
    const auto changed = how == "upper" ? utf8proc_toupper(c)
                         : begins       ? utf8proc_totitle(c)
                                        : utf8proc_tolower(c);
    append_utf8(out, static_cast<char32_t>(changed));
    const auto category = utf8proc_category(c);
    in_word = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT;
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace leq::jinja
