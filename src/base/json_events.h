// The event-driven (SAX) parser that parse_json uses; it reports one value after another to a
// handler.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace leq {

class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual void leaf(Json value) = 0;
  virtual void open(Json::Type type) = 0;  // array or object
  virtual void key(std::string name) = 0;
  virtual void close() = 0;
};

// Reads exactly one value. Throws Error naming `source` and the offset if the text is not JSON or
// exceeds the limits on length, depth or number of values. Duplicate keys in an object are reported
// to the handler like others.
void read_json(std::string_view text, std::string_view source, const JsonLimits& limits,
               JsonEvents& events);

}  // namespace leq
