// Builds JSON objects and arrays as text. Members keep the order in which they were added, because
// templates show them to the model in that order.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/json_tree.h"

namespace leq {

class JsonObjectText {
 public:
  void add_raw(std::string_view name, std::string_view json) {
    text_ += (text_.size() > 1 ? "," : "") + Json(name).dump_any() + ":" + std::string(json);
  }
  void add(std::string_view name, JsonNode value) { add_raw(name, value.dump()); }
  // Does nothing if `value` is nothing.
  void add_given(std::string_view name, JsonNode value) {
    if (value && !value.is_null()) add(name, value);
  }
  void add_text(std::string_view name, std::string_view value) {
    add_raw(name, Json(value).dump_any());
  }
  std::string finish() && { return std::move(text_) + "}"; }

 private:
  std::string text_ = "{";
};

class JsonArrayText {
 public:
  void add(std::string_view json) { text_ += (empty() ? "" : ",") + std::string(json); }
  bool empty() const { return text_.size() == 1; }
  std::string finish() && { return std::move(text_) + "]"; }

 private:
  std::string text_ = "[";
};

}  // namespace leq
