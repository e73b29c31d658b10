#include "chat/jinja/context.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace leq::jinja {

const Value& Context::defined(const Value& value) const {
  if (value.is_undefined()) {
    const std::string name = value.text == nullptr ? "a value" : std::string(value.bytes());
    wrong(printable(name), " is undefined");
  }
  return value;
}

std::string_view Context::text_of(const Value& value, std::string_view what) const {
  if (!value.is_text()) wrong(what, ": expected a text, found ", type_name(value));
  return value.bytes();
}

std::int64_t Context::whole_of(const Value& value, std::string_view what) const {
  if (!value.is_whole()) wrong(what, ": expected an integer, found ", type_name(value));
  return value.whole();
}

std::optional<Value> Arguments::get(std::size_t i, std::string_view name) const {
  if (i < values.size()) return values[i];
  for (const auto& [known, value] : named) {
    if (known == name) return value;
  }
  return std::nullopt;
}

void Arguments::check(const Context& context, std::string_view callee, std::size_t most,
                      std::initializer_list<std::string_view> names) const {
  if (values.size() > most) {
    context.wrong(callee, " takes ", most, " arguments, found ", values.size());
  }
  for (const auto& [name, value] : named) {
    if (std::ranges::find(names, name) == names.end()) {
      context.wrong(callee, " has no argument ", printable(name));
    }
  }
}

namespace {

std::string two_digits(int number) {
  const std::string text = std::to_string(number);
  return text.size() < 2 ? "0" + text : text;
}

}  // namespace

// Formats in English, regardless of the locale.
std::string time_text(const Context& context, std::string_view format) {
  constexpr std::array<std::string_view, 12> kMonths = {
      "January", "February", "March",     "April",   "May",      "June",
      "July",    "August",   "September", "October", "November", "December"};
  constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                     "Thursday", "Friday", "Saturday"};
  const std::tm& t = context.now;
  const auto month = kMonths[static_cast<std::size_t>(std::clamp(t.tm_mon, 0, 11))];
  const auto day = kDays[static_cast<std::size_t>(std::clamp(t.tm_wday, 0, 6))];
  const std::string year = std::to_string(t.tm_year + 1900);
  const int hour12 = t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12;
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    bool padded = true;
    if (format[i + 1] == '-' && i + 2 < format.size()) {
      padded = false;
      ++i;
    }
    const auto number = [&](int value) {
      return padded ? two_digits(value) : std::to_string(value);
    };
    switch (format[++i]) {
      case 'd':
        out += number(t.tm_mday);
        break;
      case 'm':
        out += number(t.tm_mon + 1);
        break;
      case 'H':
        out += number(t.tm_hour);
        break;
      case 'I':
        out += number(hour12);
        break;
      case 'M':
        out += number(t.tm_min);
        break;
      case 'S':
        out += number(t.tm_sec);
        break;
      case 'y':
        out += year.substr(year.size() < 2 ? 0 : year.size() - 2);
        break;
      case 'Y':
        out += year;
        break;
      case 'b':
        out += month.substr(0, 3);
        break;
      case 'B':
        out += month;
        break;
      case 'a':
        out += day.substr(0, 3);
        break;
      case 'A':
        out += day;
        break;
      case 'p':
        out += t.tm_hour < 12 ? "AM" : "PM";
        break;
      case 'F':
        out += year + "-" + two_digits(t.tm_mon + 1) + "-" + two_digits(t.tm_mday);
        break;
      case 'T':
        out += two_digits(t.tm_hour) + ":" + two_digits(t.tm_min) + ":" + two_digits(t.tm_sec);
        break;
      case '%':
        out += '%';
        break;
      default:
        context.wrong("%", printable(format.substr(i, 1)), " in strftime_now() is not supported");
    }
  }
  return out;
}

}  // namespace leq::jinja
