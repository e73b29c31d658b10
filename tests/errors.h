// What calls throw: the text of the Error, and that it holds what is expected.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <source_location>
#include <string>
#include <string_view>

#include "base/error.h"

namespace leq::test {

// The text of the Error that the call throws; "" where it throws none.
template <class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The call throws an Error whose text holds all parts.
template <class Call>
void expect_error(Call&& call, std::initializer_list<std::string_view> parts,
                  const std::source_location& at = std::source_location::current()) {
  const std::string text = error_of(call);
  for (const std::string_view part : parts) {
    if (!text.empty() && text.find(part) != std::string::npos) continue;
    ADD_FAILURE_AT(at.file_name(), static_cast<int>(at.line()))
        << "expected an error with \"" << part << "\", found \"" << text << "\"";
  }
}

}  // namespace leq::test
