// The only exception type of leq and the functions that throw it.
// An error message is one line: what failed, where, what was expected and found, and a remedy.
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
  bad_input,    // a file or a text is invalid
  bad_setting,  // a setting is out of range, unknown, or contradicts another setting
  no_memory,    // an allocation failed, or a plan does not fit the available memory
  no_device,    // a device is missing or fails, or this build has no code for it
  io,           // the system refuses to open, read, write, sync ...
  interrupted,  // cancelled by the caller
  internal,     // a function was called incorrectly: a mistake in a program, not in its input
};

// A setting within a message, by the name of its field: Setting{"context"}. The name is marked, so
// that each program can replace it by its own spelling: the library writes "context 9000: expected
// ...", a command-line tool writes the flag.
struct Setting {
  std::string_view name;  // a-z, 0-9, _ and .
  std::string marked() const;
};

using SettingSpeller = std::string (*)(std::string_view name);
// The text with each marked setting replaced by the speller's spelling.
std::string spelled(std::string_view marked, SettingSpeller speller);
// The text with each marked setting replaced by its name.
std::string spelled(std::string_view marked);

class Error : public std::runtime_error {
 public:
  // `marked`: a text that may contain marked settings.
  explicit Error(const std::string& marked, ErrorKind kind = ErrorKind::bad_input);

  // what() returns the text with settings written as field names.
  ErrorKind kind() const { return kind_; }
  // The first setting that the text names, or "" if it names none. If the kind is bad_setting, the
  // error is in this setting; otherwise changing the setting may help.
  std::string setting() const;
  // The text with its marks, for spelled() and for errors that quote this one.
  const char* marked() const { return marked_.what(); }

 private:
  std::runtime_error marked_;  // copying an exception must not throw; copying a string may
  ErrorKind kind_;
};

// One part of a message: a text, a number (printed as streams print it), a Setting, or the kind.
class MessagePart {
 public:
  MessagePart(std::string_view text) : form_(Form::text), text_(text) {}
  MessagePart(const std::string& text) : MessagePart(std::string_view(text)) {}
  MessagePart(const char* text) : MessagePart(std::string_view(text)) {}
  MessagePart(char letter) : form_(Form::letter), number_(static_cast<unsigned char>(letter)) {}
  MessagePart(double number) : form_(Form::real), real_(number) {}
  MessagePart(Setting setting) : form_(Form::setting), text_(setting.name) {}
  MessagePart(ErrorKind kind) : form_(Form::kind), number_(static_cast<std::uint64_t>(kind)) {}
  // int8_t and uint8_t are not accepted, since they may be characters or numbers: write int{x}.
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

// Throws Error with the concatenation of all parts. One part may be the kind, preferably the first:
// fail(ErrorKind::io, path, ": cannot open"). Without a kind, the error is bad_setting if the text
// begins with a setting, otherwise bad_input.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  fail_with({MessagePart(parts)...});
}

// Throws Error unless the condition is true: require(shape == want, name, ": expected ", want).
template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(parts...);
}

// require() for conditions that only a programming error, in leq or in its caller, can violate: the
// error has ErrorKind internal.
template <class... Parts>
void ensure(bool condition, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(ErrorKind::internal, parts...);
}

}  // namespace leq
