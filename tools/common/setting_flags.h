// How the tools write settings: "context" of the library is -c on every command line.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace leq {

struct SettingFlag {
  std::string_view setting;  // as the library names it
  std::string_view flag;     // as users type it
};

// All settings that messages of the library speak of, by name; but for those of sampling, which are
// a table themselves (model/sampling_settings.h).
std::span<const SettingFlag> setting_flags();
// The flag of a setting, its name where there is none.
std::string flag_of(std::string_view setting);
// A message, or another text with marked settings, for people at a command line.
std::string with_flags(const Error& error);
std::string with_flags(std::string_view marked);

}  // namespace leq
