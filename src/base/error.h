// The one exception type of leq and the ways to throw it.
// An error message is one line: what failed, where, what was expected and found, what to try.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

namespace leq {

// Kinds of errors, for callers that handle them differently.
enum class ErrorKind : std::uint8_t {
  bad_input,    // a file or a text is not what it should be
  bad_setting,  // a setting is out of range, unknown, or contradicts another
  no_memory,    // memory cannot be had, or a plan does not fit what there is
  no_device,    // a device that is not here, fails, or that this build has no code for
  io,           // the system refuses to open, read, write, sync ...
  interrupted,  // ended because the caller wanted it to end
  internal,     // a function was called as it must not be: a mistake in a program, not in its input
};

std::string_view error_kind_name(ErrorKind kind);

// A setting within a message, by the name of its field: Setting{"context"}. The text marks the
// name, so that each program can replace it by its own spelling: the library writes "context 9000:
// expected ...", a tool the flag.
struct Setting {
  std::string_view name;  // a-z, 0-9 and _
  std::string marked() const;
};

using SettingSpeller = std::string (*)(std::string_view name);
// The text with each marked setting as the speller writes it.
std::string spelled(std::string_view marked, SettingSpeller speller);
// The text with each marked setting by its name.
std::string spelled(std::string_view marked);

class Error : public std::runtime_error {
 public:
  // `marked`: a text that may hold marked settings.
  explicit Error(const std::string& marked, ErrorKind kind = ErrorKind::bad_input);

  // what() names settings by their fields.
  ErrorKind kind() const { return kind_; }
  // The first setting that the text names, "" if there is none: the one at fault where the kind is
  // bad_setting, otherwise one that may help.
  std::string setting() const;
  // The text with marks: for spelled(), and for an error that quotes this one.
  const char* marked() const { return marked_.what(); }

 private:
  std::runtime_error marked_;  // an exception must copy without throwing, a string may not
  ErrorKind kind_;
};

// One part of a message: text, a number (written as streams write it), a Setting, or the kind.
class MessagePart {
 public:
  MessagePart(std::string_view text) : form_(Form::text), text_(text) {}
  MessagePart(const std::string& text) : MessagePart(std::string_view(text)) {}
  MessagePart(const char* text) : MessagePart(std::string_view(text)) {}
  MessagePart(char letter) : form_(Form::letter), number_(static_cast<unsigned char>(letter)) {}
  MessagePart(double number) : form_(Form::real), real_(number) {}
  MessagePart(Setting setting) : form_(Form::setting), text_(setting.name) {}
  MessagePart(ErrorKind kind) : form_(Form::kind), number_(static_cast<std::uint64_t>(kind)) {}
  // Bytes (int8_t, uint8_t) do not say whether they are letters or numbers: write int{x}.
  template <std::integral T>
  requires(sizeof(T) > 1 || std::same_as<T, bool>) MessagePart(T number)
      : form_(std::signed_integral<T> ? Form::integer : Form::natural),
        number_(static_cast<std::uint64_t>(number)) {}

 private:
  friend class ErrorText;
  enum class Form : std::uint8_t { text, letter, integer, natural, real, setting, kind };
  Form form_;
  std::uint64_t number_ = 0;
  double real_ = 0;
  std::string_view text_;
};

[[noreturn]] void fail_with(std::initializer_list<MessagePart> parts);

// Throws Error with all parts one after another. A kind may stand among them, best as the first:
// fail(ErrorKind::io, path, ": cannot open"). Where none does, a text that begins with a setting is
// about it, bad_setting, and any other is bad_input.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  fail_with({MessagePart(parts)...});
}

// require(shape == want, name, ": expected ", want, ", file has ", shape)
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(parts...);
}

// require() for conditions that only a programming error can break, in leq or in its caller:
// ErrorKind internal.
template <class... Parts>
void ensure(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(ErrorKind::internal, parts...);
}

}  // namespace leq
