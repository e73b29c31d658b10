// Damages a JSON text: one of its values, one member, or the text around it.
#pragma once

#include <string>
#include <string_view>

#include "hostile/dice.h"

namespace leq::hostile {

enum class JsonHarm : std::uint8_t {
  none,       // different JSON with the same meaning: must be accepted
  malformed,  // no longer JSON
  bomb,       // JSON that is far too deep or has far too many values
  same,       // the original value
  value,      // another value, in range or not
  type,       // a value of another type
  missing,    // a member is gone
  duplicate,  // a member occurs twice, with two values
  unknown,    // an additional member with an unknown name
};

struct DamagedJson {
  std::string text;
  std::string where;  // "/config/layers"; empty for the whole text
  std::string what;   // "value -1"
  JsonHarm harm = JsonHarm::none;
};

// `text` must be JSON.
DamagedJson damage_json(std::string_view text, Dice& dice);

}  // namespace leq::hostile
