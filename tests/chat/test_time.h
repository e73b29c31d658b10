// The time at which tests render templates.
#pragma once

#include <ctime>

namespace leq::test {

// Wednesday, 5 March 2025, 14:07:09.
inline std::tm test_time() {
  std::tm now = {};
  now.tm_year = 125;
  now.tm_mon = 2;
  now.tm_mday = 5;
  now.tm_hour = 14;
  now.tm_min = 7;
  now.tm_sec = 9;
  now.tm_wday = 3;
  return now;
}

}  // namespace leq::test
