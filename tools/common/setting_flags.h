// The command-line flags of the library's settings; "context", for example, is -c in all tools.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace leq {

struct SettingFlag {
  std::string_view setting;  // the library's name
  std::string_view flag;     // the user's spelling
};

// All settings that the library's messages mention, by name; sampling settings are in a table of
// their own (sampling/settings.h).
std::span<const SettingFlag> setting_flags();
// Returns the flag of a setting; if it has none, the setting's name.
std::string flag_of(std::string_view setting);
// Returns a message or another text in which marked settings are replaced by their flags.
std::string with_flags(const Error& error);
std::string with_flags(std::string_view marked);

}  // namespace leq
