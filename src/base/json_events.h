// The event-driven (SAX) parser under parse_json: it reports value by value to a
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

// Reads exactly one value. Throws Error naming `source` and the offset on what is no JSON, and
// where it is longer, deeper, or has more values than it may. Names that stand twice in an object
// are told as they come.
void read_json(std::string_view text, std::string_view source, const JsonLimits& limits,
               JsonEvents& events);

}  // namespace leq
