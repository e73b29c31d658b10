// JSON whose objects keep the order in which their members were written, which counts where they
// are shown to a model: descriptions of tools, schemas. Values lie in one flat list, so nothing
// that is done with a tree needs a stack as deep as it is nested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace leq {

class JsonTree;

// A value in a tree, or nothing; the tree must outlive it and not move. Access as another type
// throws Error.
class JsonNode {
 public:
  JsonNode() = default;
  explicit operator bool() const { return tree_ != nullptr; }

  Json::Type type() const;
  const char* type_name() const;  // "absent" for nothing
  bool is_null() const { return is(Json::Type::null); }
  bool is_boolean() const { return is(Json::Type::boolean); }
  bool is_number() const { return is_integer() || is(Json::Type::number_float); }
  bool is_integer() const {
    return is(Json::Type::number_integer) || is(Json::Type::number_unsigned);
  }
  bool is_string() const { return is(Json::Type::string); }
  bool is_array() const { return is(Json::Type::array); }
  bool is_object() const { return is(Json::Type::object); }

  bool boolean() const;
  double number() const;
  // A whole number that an int64 holds, as 3 or 3.0; else nullopt.
  std::optional<std::int64_t> whole() const;
  const std::string& text() const;
  const std::string& key() const;  // of a member

  std::size_t size() const;  // elements or members; 0 of anything else
  // Elements and members one after the other: for (JsonNode e = n.first(); e; e = e.next()).
  JsonNode first() const;
  JsonNode next() const;
  JsonNode last() const;
  JsonNode find(std::string_view name) const;  // a member, or nothing
  Json leaf() const;                           // null, a boolean, a number or a text
  // On one line, members in their order; bytes that are no UTF-8 become U+FFFD.
  std::string dump() const;

 private:
  friend class JsonTree;
  JsonNode(const JsonTree* tree, std::uint32_t index) : tree_(tree), index_(index) {}
  bool is(Json::Type wanted) const { return tree_ != nullptr && type() == wanted; }

  const JsonTree* tree_ = nullptr;
  std::uint32_t index_ = 0;
};

class JsonTree {
 public:
  JsonNode root() const { return {this, 0}; }

 private:
  friend class JsonNode;
  friend class JsonTreeBuilder;
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Value {
    Json leaf;  // or an empty array or object
    std::string key;
    std::uint32_t first = kNone, next = kNone;
    std::uint32_t size = 0;
  };
  std::vector<Value> values_;
};

// As parse_json: exactly one value, limits, no name twice in an object.
JsonTree parse_json_tree(std::string_view text, std::string_view source,
                         const JsonLimits& limits = {});

}  // namespace leq
