// Command-line flags of the library's settings: "context" is -c in all tools.
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

// All settings that the library's messages mention, by name; those of sampling have a table of
// their own (model/sampling_settings.h).
std::span<const SettingFlag> setting_flags();
// The flag of a setting; its name where it has none.
std::string flag_of(std::string_view setting);
// A message, or another text with marked settings, with flags in place of the settings' names.
std::string with_flags(const Error& error);
std::string with_flags(std::string_view marked);

}  // namespace leq
