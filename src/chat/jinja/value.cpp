#include "chat/jinja/interpreter.h"

#include <utf8proc.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/text.h"

namespace leq::jinja {
namespace {

// White space as defined by Python's str.isspace.
bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

std::size_t character_length(std::string_view bytes) {
  return std::max<std::size_t>(utf8_length(bytes), 1);
}

std::string_view last_character(std::string_view bytes) {
  for (std::size_t length = std::min<std::size_t>(4, bytes.size()); length > 0; --length) {
    const auto tail = bytes.substr(bytes.size() - length);
    if (utf8_length(tail) == length) return tail;
  }
  return bytes.substr(bytes.size() - 1);
}

bool is_space(std::string_view character) {
  return utf8_length(character) > 0 && is_space(decode_utf8(character));
}

// Whether `characters` contains this character.
bool holds(std::string_view characters, std::string_view character) {
  while (!characters.empty()) {
    const std::size_t length = character_length(characters);
    if (characters.substr(0, length) == character) return true;
    characters.remove_prefix(length);
  }
  return false;
}

template <class Drops>
Text strip_where(const Text& text, Ends ends, const Drops& drops) {
  std::string_view rest = text.bytes();
  std::size_t from = 0;
  if (ends != Ends::right) {
    while (!rest.empty()) {
      const auto first = rest.substr(0, character_length(rest));
      if (!drops(first)) break;
      rest.remove_prefix(first.size());
      from += first.size();
    }
  }
  if (ends != Ends::left) {
    while (!rest.empty()) {
      const auto last = last_character(rest);
      if (!drops(last)) break;
      rest.remove_suffix(last.size());
    }
  }
  return text.slice(from, rest.size());
}

}  // namespace

Text Text::slice(std::size_t from, std::size_t length) const {
  Text part;
  part.bytes_ = bytes_.substr(from, length);
  part.own_ = own_.substr(from, length);
  part.safe = safe;
  return part;
}

void Text::append(const Text& other) {
  bytes_ += other.bytes_;
  own_ += other.own_;
}

Text stripped(Context& context, const Text& text, Ends ends) {
  return strip_where(text, ends, [&](std::string_view c) {
    context.step_over(16);
    return is_space(c);
  });
}

Text stripped(Context& context, const Text& text, Ends ends, std::string_view characters) {
  return strip_where(text, ends, [&](std::string_view c) {
    context.step_over(16 * (1 + characters.size()));
    return holds(characters, c);
  });
}

std::size_t leading_space(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto c = bytes.substr(at, character_length(bytes.substr(at)));
    if (!is_space(c)) break;
    at += c.size();
  }
  return at;
}

std::size_t trailing_space(std::string_view bytes) {
  const std::size_t all = bytes.size();
  while (!bytes.empty()) {
    const auto c = last_character(bytes);
    if (!is_space(c)) break;
    bytes.remove_suffix(c.size());
  }
  return all - bytes.size();
}

std::vector<Value> split(Context& context, const Text& text, std::string_view separator,
                         std::int64_t most) {
  std::vector<Value> parts;
  std::size_t from = 0;
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t size = context.find(text.bytes().substr(from), separator);
    if (size == std::string_view::npos) break;
    parts.push_back(context.heap.text(text.slice(from, size)));
    from += size + separator.size();
  }
  parts.push_back(context.heap.text(text.slice(from, text.size() - from)));
  return parts;
}

std::vector<Value> split_right(Context& context, const Text& text, std::string_view separator,
                               std::int64_t most) {
  std::vector<Value> parts;
  std::size_t end = text.size();
  while (most < 0 || std::ssize(parts) < most) {
    const std::size_t at = context.find_last(text.bytes().substr(0, end), separator);
    if (at == std::string_view::npos) break;
    const std::size_t from = at + separator.size();
    parts.push_back(context.heap.text(text.slice(from, end - from)));
    end = at;
  }
  parts.push_back(context.heap.text(text.slice(0, end)));
  std::ranges::reverse(parts);
  return parts;
}

std::vector<Value> split_space(Context& context, const Text& text, std::int64_t most) {
  std::vector<Value> parts;
  const std::string_view bytes = text.bytes();
  std::size_t at = leading_space(bytes);
  while (at < bytes.size()) {
    if (most >= 0 && std::ssize(parts) == most) {
      const std::size_t end = bytes.size() - trailing_space(bytes.substr(at));
      parts.push_back(context.heap.text(text.slice(at, end - at)));
      break;
    }
    const std::size_t from = at;
    while (at < bytes.size()) {
      const auto c = bytes.substr(at, character_length(bytes.substr(at)));
      if (is_space(c)) break;
      at += c.size();
    }
    parts.push_back(context.heap.text(text.slice(from, at - from)));
    at += leading_space(bytes.substr(at));
  }
  return parts;
}

std::vector<Value> split_lines(Context& context, const Text& text, bool keep_ends) {
  constexpr std::array<std::string_view, 11> kEnds = {
      "\r\n", "\n",   "\r",       "\v",           "\f",          "\x1c",
      "\x1d", "\x1e", "\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9"};
  std::vector<Value> lines;
  const std::string_view bytes = text.bytes();
  context.step_over(8 * bytes.size());
  std::size_t from = 0, at = 0;
  while (at < bytes.size()) {
    const auto end = std::ranges::find_if(
        kEnds, [&](std::string_view e) { return bytes.substr(at).starts_with(e); });
    if (end == kEnds.end()) {
      ++at;
      continue;
    }
    const std::size_t until = keep_ends ? at + end->size() : at;
    lines.push_back(context.heap.text(text.slice(from, until - from)));
    at += end->size();
    from = at;
  }
  if (from < bytes.size()) {
    lines.push_back(context.heap.text(text.slice(from, bytes.size() - from)));
  }
  return lines;
}

Text replaced(Context& context, const Text& text, const Text& from, const Text& to,
              std::int64_t most) {
  Text out;
  std::size_t done = 0;
  if (from.empty()) {  // inserted between all characters, as in Python
    for (const std::size_t start : character_starts(text.bytes())) {
      out.append(text.slice(done, start - done));
      done = start;
      if (most != 0) out.append(to);
      if (most > 0) --most;
      context.check_size(out.size());
    }
    return out;
  }
  for (; most != 0; --most) {
    const std::size_t size = context.find(text.bytes().substr(done), from.bytes());
    if (size == std::string_view::npos) break;
    out.append(text.slice(done, size));
    out.append(to);
    done += size + from.size();
    context.check_size(out.size());
  }
  out.append(text.slice(done, text.size() - done));
  out.safe = text.safe;
  return out;
}

Text escaped(Context& context, const Text& text) {
  Text out = text;
  for (const auto& [from, to] :
       {std::pair("&", "&amp;"), std::pair(">", "&gt;"), std::pair("<", "&lt;"),
        std::pair("'", "&#39;"), std::pair("\"", "&#34;")}) {
    out = replaced(context, out, Text::foreign(from), Text::foreign(to), -1);
  }
  out.safe = true;
  return out;
}

std::size_t count_characters(std::string_view bytes) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < bytes.size(); ++count) at += character_length(bytes.substr(at));
  return count;
}

std::vector<std::size_t> character_starts(std::string_view bytes) {
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < bytes.size(); at += character_length(bytes.substr(at))) {
    starts.push_back(at);
  }
  starts.push_back(bytes.size());
  return starts;
}

namespace {

constexpr std::size_t kMaxBytes = std::size_t{512} << 20;

}  // namespace

std::size_t Context::common(std::string_view a, std::string_view b) {
  constexpr std::size_t kBlock = 64;
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t size = 0;
  while (most - size >= kBlock && a.substr(size, kBlock) == b.substr(size, kBlock)) size += kBlock;
  while (size < most && a[size] == b[size]) ++size;
  step_over(8 + size);
  return size;
}

bool Context::same(std::string_view a, std::string_view b) {
  if (a.size() == b.size()) return common(a, b) == a.size();
  step_over(8);
  return false;
}

std::size_t Context::find(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return 0;
  std::size_t from = 0;
  while (wanted.size() <= text.size() - from) {
    const std::size_t at = text.find(wanted[0], from);
    step_over(std::min(at, text.size()) - from);
    if (at == std::string_view::npos) break;
    if (common(wanted, text.substr(at)) == wanted.size()) return at;
    from = at + 1;
  }
  return std::string_view::npos;
}

std::size_t Context::find_last(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return text.size();
  while (wanted.size() <= text.size()) {
    const std::string_view places = text.substr(0, text.size() - wanted.size() + 1);
    const std::size_t at = places.rfind(wanted[0]);
    step_over(places.size() - (at == std::string_view::npos ? 0 : at));
    if (at == std::string_view::npos) break;
    if (common(wanted, text.substr(at)) == wanted.size()) return at;
    text.remove_suffix(places.size() - at);
  }
  return std::string_view::npos;
}

bool equal(Context& context, const Value& a, const Value& b, int depth) {
  context.check_depth(depth);
  if (a.is_text() && b.is_text()) return context.same(a.bytes(), b.bytes());
  context.step_over(8);
  if (a.is_number() && b.is_number()) {
    return a.is_whole() && b.is_whole() ? a.whole() == b.whole() : a.number() == b.number();
  }
  if (a.type != b.type) return false;
  switch (a.type) {
    case Value::Type::undefined:
    case Value::Type::none:
      return true;
    case Value::Type::list:
      return a.list->is_tuple == b.list->is_tuple &&
             std::ranges::equal(a.list->items, b.list->items, [&](const Value& x, const Value& y) {
               return equal(context, x, y, depth + 1);
             });
    case Value::Type::dict:
      return a.dict->items.size() == b.dict->items.size() &&
             std::ranges::all_of(a.dict->items, [&](const auto& entry) {
               const Value* other = b.dict->find(context, entry.first);
               return other != nullptr && equal(context, entry.second, *other, depth + 1);
             });
    case Value::Type::function:
      return a.function == b.function;
    default:
      return a.macro == b.macro;  // identity
  }
}

const Value* Dict::find(Context& context, std::string_view key) const {
  const auto found = std::ranges::find_if(items, [&](const auto& entry) {
    return entry.first.is_text() && context.same(entry.first.bytes(), key);
  });
  return found == items.end() ? nullptr : &found->second;
}

const Value* Dict::find(Context& context, const Value& key) const {
  const auto found = std::ranges::find_if(
      items, [&](const auto& entry) { return equal(context, entry.first, key); });
  return found == items.end() ? nullptr : &found->second;
}

Value none_value() { return {.type = Value::Type::none}; }
Value of(bool boolean) { return {.type = Value::Type::boolean, .boolean = boolean}; }
Value of(std::int64_t integer) { return {.type = Value::Type::integer, .integer = integer}; }
Value of(double real) { return {.type = Value::Type::real, .real = real}; }

void Heap::charge(std::size_t bytes) {
  bytes_ += bytes + 64;
  require(bytes_ <= kMaxBytes, "the chat template takes more than ", kMaxBytes,
          " bytes of memory for this conversation");
}

Value Heap::text(Text text) {
  charge(2 * text.size());
  return {.type = Value::Type::text, .text = &texts_.emplace_back(std::move(text))};
}

Value Heap::list(std::vector<Value> items, bool is_tuple) {
  charge(items.size() * sizeof(Value));
  return {.type = Value::Type::list,
          .list = &lists_.emplace_back(List{std::move(items), is_tuple})};
}

Value Heap::tuple(std::vector<Value> items) { return list(std::move(items), true); }

Value Heap::dict(Dict dict) {
  charge(dict.items.size() * 2 * sizeof(Value));
  return {.type = Value::Type::dict, .dict = &dicts_.emplace_back(std::move(dict))};
}

Value Heap::name_space() {
  charge(0);
  return {.type = Value::Type::name_space, .name_space = &name_spaces_.emplace_back()};
}

Value Heap::method(const Value& self, std::string_view name) {
  charge(0);
  return {.type = Value::Type::method, .method = &methods_.emplace_back(BoundMethod{self, name})};
}

Value Heap::loop(const Loop& loop) {
  charge(0);
  return {.type = Value::Type::loop, .loop = &loops_.emplace_back(loop)};
}

Loop& Heap::loop_of(const Value& value) { return const_cast<Loop&>(*value.loop); }

Value Heap::undefined(std::string_view name) { return {.text = text(Text::foreign(name)).text}; }

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

std::string_view type_name(const Value& value) {
  constexpr std::string_view kNames[] = {
      "undefined", "none",        "a boolean", "an integer", "a number", "a text", "a list",
      "a dict",    "a namespace", "a macro",   "a function", "a method", "a loop"};
  return kNames[static_cast<std::size_t>(value.type)];
}

// Values as text, like Python's str(), repr() and json.dumps().
namespace {

// Python's repr of a float: the shortest digits, with an exponent outside of 1e-4 ... 1e16.
std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 400> buffer;
  const auto scientific = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                        std::chars_format::scientific);
  const std::string text(buffer.data(), scientific.ptr);
  const int exponent = static_cast<int>(
      *parse_int(text.substr(text.find('e') + (text[text.find('e') + 1] == '+' ? 2 : 1))));
  if (exponent < -4 || exponent >= 16) return text;
  const auto plain =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string fixed(buffer.data(), plain.ptr);
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

void append_hex(std::string& out, std::uint32_t code, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[code >> shift & 15];
  }
}

// Characters that Python's repr does not escape, apart from white space and quotes.
bool is_printable(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return c == ' ' || (category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
}

std::string text_repr(std::string_view text) {
  const bool single =
      text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char32_t c = length > 0 ? decode_utf8(text) : static_cast<unsigned char>(text[0]);
    const std::string_view bytes = text.substr(0, std::max<std::size_t>(length, 1));
    text.remove_prefix(bytes.size());
    if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (bytes[0] == quote || c == '\\') {
      out += '\\';
      out += bytes;
    } else if (length > 0 && is_printable(c)) {
      out += bytes;
    } else {
      out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
      append_hex(out, c, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
    }
  }
  return out + quote;
}

void append_repr(Context& context, std::string& out, const Value& value, int depth) {
  context.check_depth(depth);
  context.step();
  if (value.is_text()) {
    context.step_over(16 * value.bytes().size());
    out += value.text->safe ? "Markup(" + text_repr(value.bytes()) + ")" : text_repr(value.bytes());
  } else if (value.is_list()) {
    const bool tuple = value.list->is_tuple;
    out += tuple ? "(" : "[";
    for (const Value& element : value.list->items) {
      if (&element != value.list->items.data()) out += ", ";
      append_repr(context, out, element, depth + 1);
    }
    if (tuple && value.list->items.size() == 1) out += ',';
    out += tuple ? ")" : "]";
  } else if (value.is_dict()) {
    out += '{';
    for (const auto& entry : value.dict->items) {
      if (&entry != value.dict->items.data()) out += ", ";
      append_repr(context, out, entry.first, depth + 1);
      out += ": ";
      append_repr(context, out, entry.second, depth + 1);
    }
    out += '}';
  } else {
    out += value.is_undefined() ? "Undefined" : to_text(context, value).bytes();
  }
  context.check_size(out.size());
}

class JsonText {
 public:
  JsonText(Context& context, const JsonStyle& style) : context_(context), style_(style) {}

  std::string write(const Value& value) {
    add(value, 0);
    return std::move(out_);
  }

 private:
  void add(const Value& value, int depth) {
    context_.check_depth(depth);
    context_.step();
    if (value.is_text()) {
      context_.step_over(value.bytes().size());
      add_text(value.bytes());
    } else if (value.is_list()) {
      out_ += '[';
      for (const Value& element : value.list->items) {
        begin(&element != value.list->items.data(), depth + 1);
        add(element, depth + 1);
      }
      close(']', value.list->items.empty(), depth);
    } else if (value.is_dict()) {
      add_dict(value, depth);
    } else if (value.is_number() || value.is_none()) {
      add_plain(value);
    } else {
      context_.wrong("tojson of ", type_name(value));
    }
    context_.check_size(out_.size());
  }

  void add_dict(const Value& value, int depth) {
    std::vector<std::pair<Value, Value>> items = value.dict->items;
    if (style_.sorted) {
      std::ranges::stable_sort(
          items, [&](const auto& a, const auto& b) { return less(context_, a.first, b.first); });
    }
    out_ += '{';
    for (const auto& entry : items) {
      begin(&entry != items.data(), depth + 1);
      if (entry.first.is_text()) {
        add_text(entry.first.bytes());
      } else if (entry.first.is_number() || entry.first.is_none()) {
        out_ += '"';
        add_plain(entry.first);
        out_ += '"';
      } else {
        context_.wrong("tojson of a dict with ", type_name(entry.first), " for a key");
      }
      add_mark(style_.colon);
      add(entry.second, depth + 1);
    }
    close('}', items.empty(), depth);
  }

  void begin(bool more, int depth) {
    if (more) add_mark(style_.comma);
    if (style_.indent) new_line(depth);
  }
  void close(char bracket, bool is_empty, int depth) {
    if (style_.indent && !is_empty) new_line(depth);
    out_ += bracket;
  }
  void new_line(int depth) {
    out_ += '\n';
    for (int i = 0; i < depth; ++i) add_mark(*style_.indent);
  }
  void add_mark(std::string_view mark) {
    out_ += mark;
    context_.check_size(out_.size());
  }

  void add_plain(const Value& value) {
    if (value.is_none()) {
      out_ += "null";
    } else if (value.is_boolean()) {
      out_ += value.boolean ? "true" : "false";
    } else if (value.is_whole()) {
      out_ += std::to_string(value.integer);
    } else if (std::isfinite(value.real)) {
      out_ += real_text(value.real);
    } else {
      out_ += std::isnan(value.real) ? "NaN" : value.real < 0 ? "-Infinity" : "Infinity";
    }
  }

  void add_text(std::string_view text) {
    constexpr std::string_view kNamed = "\"\\\n\r\t\b\f", kNames = "\"\\nrtbf";
    out_ += '"';
    for (std::size_t at = 0; at < text.size();) {
      const char c = text[at];
      const auto byte = static_cast<unsigned char>(c);
      if (const std::size_t named = kNamed.find(c); named != std::string_view::npos) {
        out_ += '\\';
        out_ += kNames[named];
      } else if (byte < 0x20) {
        add_code(byte);
      } else if (const std::size_t length = utf8_length(text.substr(at));
                 style_.ascii && length > 1) {
        add_code(decode_utf8(text.substr(at)));
        at += length;
        continue;
      } else {
        out_ += c;
      }
      ++at;
    }
    out_ += '"';
  }

  void add_code(std::uint32_t code) {
    if (code >= 0x10000) {
      add_code(0xd800 + ((code - 0x10000) >> 10));
      code = 0xdc00 + ((code - 0x10000) & 0x3ff);
    }
    out_ += "\\u";
    append_hex(out_, code, 4);
  }

  Context& context_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

Text to_text(Context& context, const Value& value) {
  switch (value.type) {
    case Value::Type::text:
      return *value.text;
    case Value::Type::undefined:
      return {};
    case Value::Type::none:
      return Text::foreign("None");
    case Value::Type::boolean:
      return Text::foreign(value.boolean ? "True" : "False");
    case Value::Type::integer:
      return Text::foreign(std::to_string(value.integer));
    case Value::Type::real:
      return Text::foreign(real_text(value.real));
    case Value::Type::list:
    case Value::Type::dict: {
      std::string out;
      append_repr(context, out, value, 0);
      return Text::foreign(out);
    }
    default:
      context.wrong("cannot be written as a text: ", type_name(value));
  }
}

std::string to_json(Context& context, const Value& value, const JsonStyle& style) {
  return JsonText(context, style).write(value);
}

}  // namespace leq::jinja
