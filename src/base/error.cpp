#include "base/error.h"

#include <array>
#include <charconv>
#include <optional>

#include "base/text.h"

namespace leq {
namespace {

// Control characters that delimit a setting's name in a message; in external text they are inert.
constexpr char kMarkBegin = '\x02';
constexpr char kMarkEnd = '\x03';
constexpr int kStreamDigits = 6;  // significant digits of a number, as streams print it by default

bool is_name_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

// The setting's name if a mark begins at `begin`, otherwise nullopt.
std::optional<std::string_view> name_at(std::string_view text, std::size_t begin) {
  if (text[begin] != kMarkBegin) return std::nullopt;
  std::size_t end = begin + 1;
  while (end < text.size() && is_name_letter(text[end])) ++end;
  if (end == text.size() || text[end] != kMarkEnd) return std::nullopt;
  return text.substr(begin + 1, end - begin - 1);
}

// what() would end at a NUL byte, and readers expect UTF-8, so NUL bytes and bytes that are not
// UTF-8 in names and external text are escaped.
std::string readable(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  while (!text.empty()) {
    const std::size_t length = text[0] == '\0' ? 0 : utf8_length(text);
    if (length == 0) {
      const auto byte = static_cast<unsigned char>(text[0]);
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string own_name(std::string_view name) { return std::string(name); }

// Large enough for any 64-bit integer and for any floating-point number of six digits.
using NumberText = std::array<char, 32>;

template <class T, class... Format>
void append_number(std::string& text, T number, Format... format) {
  NumberText buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, format...).ptr;
  text.append(buffer.data(), end);
}

}  // namespace

std::string Setting::marked() const { return kMarkBegin + std::string(name) + kMarkEnd; }

std::string spelled(std::string_view marked, SettingSpeller speller) {
  std::string out;
  for (std::size_t i = 0; i < marked.size(); ++i) {
    if (const auto name = name_at(marked, i)) {
      out += speller(*name);
      i += name->size() + 1;
    } else {
      out += marked[i];
    }
  }
  return out;
}

std::string spelled(std::string_view marked) { return spelled(marked, own_name); }

Error::Error(const std::string& marked, ErrorKind kind)
    : std::runtime_error(spelled(readable(marked))), marked_(readable(marked)), kind_(kind) {}

std::string Error::setting() const {
  const std::string_view text = marked();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const auto name = name_at(text, i)) return std::string(*name);
  }
  return "";
}

class ErrorText {
 public:
  void add(const MessagePart& part) {
    using Form = MessagePart::Form;
    switch (part.form_) {
      case Form::text:
        text_ += part.text_;
        return;
      case Form::letter:
        text_ += static_cast<char>(part.number_);
        return;
      case Form::integer:
        return append_number(text_, static_cast<std::int64_t>(part.number_));
      case Form::natural:
        return append_number(text_, part.number_);
      case Form::real:
        return append_number(text_, part.real_, std::chars_format::general, kStreamDigits);
      case Form::setting:
        text_ += Setting{part.text_}.marked();
        return;
      case Form::kind:
        kind_ = static_cast<ErrorKind>(part.number_);
        return;
    }
  }

  Error error() const {
    const bool about_setting = !text_.empty() && name_at(text_, 0);
    return Error(text_,
                 kind_.value_or(about_setting ? ErrorKind::bad_setting : ErrorKind::bad_input));
  }

 private:
  std::string text_;
  std::optional<ErrorKind> kind_;
};

void fail_with(std::initializer_list<MessagePart> parts) {
  ErrorText text;
  for (const MessagePart& part : parts) text.add(part);
  throw text.error();
}

}  // namespace leq
