// Names of test cases.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace leq::test {

// A name as gtest accepts it: letters, digits and underscores.
inline std::string test_name(std::string_view text) {
  std::string name(text);
  std::ranges::replace_if(
      name, [](char c) { return c == ':' || c == '-'; }, '_');
  return name;
}

// For INSTANTIATE_TEST_SUITE_P where the parameter is a text.
inline constexpr auto named_by_text = [](const auto& item) { return test_name(item.param); };

}  // namespace leq::test
