// Converts values to text like Python's str(), repr() and json.dumps().
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <utf8proc.h>

#include "base/text.h"
#include "chat/jinja/context.h"

namespace leq::jinja {
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
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
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
  if (out.size() > kMostOutputBytes)
    context.wrong("a text of more than ", kMostOutputBytes, " bytes");
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
    if (out_.size() > kMostOutputBytes) {
      context_.wrong("a text of more than ", kMostOutputBytes, " bytes");
    }
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
      out_ += style_.colon;
      add(entry.second, depth + 1);
    }
    close('}', items.empty(), depth);
  }

  void begin(bool more, int depth) {
    if (more) out_ += style_.comma;
    if (style_.indent) new_line(depth);
  }
  void close(char bracket, bool is_empty, int depth) {
    if (style_.indent && !is_empty) new_line(depth);
    out_ += bracket;
  }
  void new_line(int depth) {
    out_ += '\n';
    for (int i = 0; i < depth; ++i) out_ += *style_.indent;
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
    case Value::Type::dict:
      return Text::foreign(repr(context, value));
    default:
      context.wrong("cannot be written as a text: ", type_name(value));
  }
}

std::string repr(Context& context, const Value& value) {
  std::string out;
  append_repr(context, out, value, 0);
  return out;
}

std::string to_json(Context& context, const Value& value, const JsonStyle& style) {
  return JsonText(context, style).write(value);
}

}  // namespace leq::jinja
