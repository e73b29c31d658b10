// Ways to damage a JSON text: one value of it, one member, or the text around it.
#pragma once

#include <string>
#include <string_view>

#include "hostile/dice.h"

namespace leq::hostile {

enum class JsonHarm : std::uint8_t {
  none,       // another JSON of the same meaning: must be accepted
  malformed,  // no JSON any more
  bomb,       // JSON that is far too deep or has far too many values
  same,       // the value that stood there
  value,      // another value, in range or not
  type,       // a value of another type
  missing,    // a member is gone
  duplicate,  // a member is there twice, with two values
  unknown,    // a member more, of a name that nobody knows
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
