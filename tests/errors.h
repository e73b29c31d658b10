// What calls throw: the text of the Error, and that it holds what is expected.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "base/error.h"

namespace leq::test {

// The Error that the call throws, if any.
template <class Call>
std::optional<Error> thrown(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

// Its text; "" where there is none.
template <class Call>
std::string error_of(Call&& call) {
  const std::optional<Error> error = thrown(call);
  return error ? error->what() : "";
}

// The call throws an Error, of `kind` where one is given, whose text is one line that holds all
// parts.
template <class Call>
void expect_error(Call&& call, std::initializer_list<std::string_view> parts,
                  std::optional<ErrorKind> kind = {},
                  const std::source_location& at = std::source_location::current()) {
  const testing::ScopedTrace trace(at.file_name(), static_cast<int>(at.line()),
                                   "expected an error");
  const std::optional<Error> error = thrown(call);
  ASSERT_TRUE(error.has_value());
  const std::string_view text = error->what();
  for (const std::string_view part : parts) {
    EXPECT_NE(text.find(part), std::string_view::npos) << "expected '" << part << "' in " << text;
  }
  EXPECT_EQ(text.find('\n'), std::string_view::npos) << text;
  if (kind) {
    EXPECT_EQ(error->kind(), *kind) << text;
  }
}

}  // namespace leq::test
