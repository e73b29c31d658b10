// JSON whose objects keep the order of their members, which matters for JSON that a model reads,
// such as tool descriptions and schemas. All values are in one flat list, so that no operation on a
// tree needs a stack as deep as the tree.
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

// A value in a tree, or nothing. The tree must outlive the node and must not be moved. Access as
// another type throws Error.
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
  // A whole number that fits an int64, written as 3 or 3.0; otherwise nullopt.
  std::optional<std::int64_t> whole() const;
  const std::string& text() const;
  const std::string& key() const;  // the member's name

  std::size_t size() const;  // elements or members; 0 for other values
  // Iterates over elements or members: for (JsonNode e = n.first(); e; e = e.next()).
  JsonNode first() const;
  JsonNode next() const;
  JsonNode last() const;
  JsonNode find(std::string_view name) const;  // a member, or nothing if absent
  Json leaf() const;                           // null, a boolean, a number or a text
  // The JSON text on one line, members in order; invalid UTF-8 becomes U+FFFD.
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
    Json leaf;  // an empty array or object for containers
    std::string key;
    std::uint32_t first = kNone, next = kNone;
    std::uint32_t size = 0;
  };
  std::vector<Value> values_;
};

// Like parse_json: exactly one value, within limits, and no duplicate keys in an object.
JsonTree parse_json_tree(std::string_view text, std::string_view source,
                         const JsonLimits& limits = {});

}  // namespace leq
