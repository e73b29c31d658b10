// JSON values, and a parser for untrusted text that limits its size and depth and whose errors name
// the source and the offset. Only json.cpp includes nlohmann-json, which reads and writes the text:
// its templates would add two seconds of compile time to every file.
//
// Objects keep the order in which members were added, which matters for JSON that a model reads,
// such as tool descriptions and schemas: JsonNode follows it. Json::items() and Json::dump() go by
// name, so that equal values are equal texts.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace leq {

// A vector of bytes is a list of numbers; types that convert to string_view are strings.
template <class T>
concept JsonText = std::convertible_to<const T&, std::string_view>;
template <class T>
concept JsonList = !JsonText<T> && requires(const T& list) {
  list.begin();
  list.end();
};

// Integers keep their signedness: those stored as unsigned, or read without a minus sign, have type
// number_unsigned. Accessing a missing value or one of another type throws Error. An insertion
// moves the other elements or members.
class Json {
 public:
  enum class Type {
    null,
    boolean,
    number_integer,
    number_unsigned,
    number_float,
    string,
    array,
    object
  };
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  struct Object {
    std::vector<Member> members;         // in the order of insertion
    std::vector<std::uint32_t> by_name;  // indices into members, sorted by name
    bool operator==(const Object& other) const;
  };
  // Iterates over the members of an object, by name.
  struct ByName {
    const Member* members;
    const std::uint32_t *first, *last;

    ByName begin() const { return *this; }
    const std::uint32_t* end() const { return last; }
    const Member& operator*() const { return members[*first]; }
    ByName& operator++() { return ++first, *this; }
    bool operator==(const std::uint32_t* place) const { return first == place; }
  };

  Json();
  Json(std::nullptr_t);
  template <std::same_as<bool> T>
  Json(T value) : Json(Value(value)) {}
  template <std::signed_integral T>
  Json(T value) : Json(Value(static_cast<std::int64_t>(value))) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) Json(T value) : Json(Value(static_cast<std::uint64_t>(value))) {}
  template <std::floating_point T>
  Json(T value) : Json(Value(static_cast<double>(value))) {}
  Json(std::string value);
  Json(std::string_view value);
  template <JsonText T>
  Json(const T& value) : Json(std::string_view(value)) {}
  template <JsonList T>
  requires(!std::same_as<T, Json>) Json(const T& list)
      : Json(Value(Array(list.begin(), list.end()))) {}
  template <class T>
  Json(const std::map<std::string, T>& table) : Json(object()) {
    for (const auto& [name, value] : table) (*this)[name] = value;
  }
  // Creates an object if every element is a pair that begins with a string, otherwise an array.
  Json(std::initializer_list<Json> elements);
  static Json array(std::initializer_list<Json> elements = {});
  static Json object(std::initializer_list<Json> members = {});

  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(Json other) noexcept;
  ~Json();

  Type type() const { return static_cast<Type>(value_.index()); }
  const char* type_name() const;
  bool is_null() const { return type() == Type::null; }
  bool is_boolean() const { return type() == Type::boolean; }
  bool is_number_integer() const {
    return type() == Type::number_integer || type() == Type::number_unsigned;
  }
  bool is_number_unsigned() const { return type() == Type::number_unsigned; }
  bool is_number_float() const { return type() == Type::number_float; }
  bool is_number() const { return is_number_integer() || is_number_float(); }
  bool is_string() const { return type() == Type::string; }
  bool is_array() const { return type() == Type::array; }
  bool is_object() const { return type() == Type::object; }

  // T may be bool, a number (converted), std::string, or a vector of these.
  template <class T>
  T get() const;
  const std::string& text() const;

  std::size_t size() const;  // elements or members; 0 for null, 1 for other values
  bool empty() const { return size() == 0; }

  // Iterates over the elements of an array; null has no elements.
  const Json* begin() const;
  const Json* end() const;
  Json* begin();
  Json* end();
  void push_back(Json element);  // null becomes an array

  ByName items() const;  // null has no members
  const std::vector<Member>& members() const { return members_of().members; }
  const Json* find(std::string_view key) const;  // end() if absent or if this is not an object
  Json* find(std::string_view key);
  bool contains(std::string_view key) const;
  // The member if this is an object that has it and its value is not null, otherwise nullptr.
  const Json* find_given(std::string_view key) const;
  // The member as a T, or `fallback` if it is absent.
  template <class T>
  T value(std::string_view key, T fallback) const {
    return contains(key) ? at(key).get<T>() : fallback;
  }
  std::string value(std::string_view key, const char* fallback) const;
  void erase(std::string_view key);
  void update(const Json& members);

  const Json& at(std::string_view key) const;
  const Json& at(std::size_t index) const;
  Json& at(std::string_view key);
  Json& at(std::size_t index);
  Json& operator[](std::string_view key);  // inserted if absent; null becomes an object
  const Json& operator[](std::string_view key) const { return at(key); }
  // Templates are needed because a literal 0 would also convert to a string_view as a null pointer.
  template <std::integral T>
  Json& operator[](T index) {
    return at(static_cast<std::size_t>(index));
  }
  template <std::integral T>
  const Json& operator[](T index) const {
    return at(static_cast<std::size_t>(index));
  }

  // Numbers are equal by value, whatever their types.
  friend bool operator==(const Json& a, const Json& b);

  // The JSON text, on one line unless `indent` is given. Throws Error if a string is not UTF-8.
  std::string dump(int indent = -1, char filler = ' ') const;
  // Like dump, but invalid UTF-8 is replaced by U+FFFD.
  std::string dump_any(int indent = -1, char filler = ' ') const;
  friend std::ostream& operator<<(std::ostream& out, const Json& json);

 private:
  using Value = std::variant<std::nullptr_t, bool, std::int64_t, std::uint64_t, double, std::string,
                             Array, Object>;

  friend class JsonNode;
  friend class JsonParser;

  explicit Json(Value value);
  const Object& members_of() const;
  [[noreturn]] void type_error(const char* expected) const;
  template <class T>
  T number() const;

  Value value_;
};

template <class T>
T Json::number() const {
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<T>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<T>(*value);
  if (const auto* value = std::get_if<double>(&value_)) return static_cast<T>(*value);
  type_error("a number");
}

template <class T>
T Json::get() const {
  if constexpr (std::is_same_v<T, Json>) {
    return *this;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (const auto* value = std::get_if<bool>(&value_)) return *value;
    type_error("a boolean");
  } else if constexpr (std::is_arithmetic_v<T>) {
    return number<T>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text();
  } else {
    if (!is_array()) type_error("an array");
    T list;
    for (const Json& element : *this) {
      list.push_back(element.template get<typename T::value_type>());
    }
    return list;
  }
}

// A value in a Json, or nothing. The Json must outlive the node and must not be changed. Access as
// another type throws Error.
class JsonNode {
 public:
  JsonNode() = default;
  JsonNode(const Json& value) : value_(&value) {}
  JsonNode(const Json&& temporary) = delete;
  explicit operator bool() const { return value_ != nullptr; }

  const Json& value() const;
  Json::Type type() const { return value().type(); }
  const char* type_name() const { return value_ == nullptr ? "absent" : value_->type_name(); }
  bool is_null() const { return value_ != nullptr && value_->is_null(); }
  bool is_boolean() const { return value_ != nullptr && value_->is_boolean(); }
  bool is_number() const { return value_ != nullptr && value_->is_number(); }
  bool is_integer() const { return value_ != nullptr && value_->is_number_integer(); }
  bool is_string() const { return value_ != nullptr && value_->is_string(); }
  bool is_array() const { return value_ != nullptr && value_->is_array(); }
  bool is_object() const { return value_ != nullptr && value_->is_object(); }

  bool boolean() const { return value().get<bool>(); }
  double number() const { return value().get<double>(); }
  // A whole number that fits an int64, written as 3 or 3.0; otherwise nullopt.
  std::optional<std::int64_t> whole() const;
  const std::string& text() const { return value().text(); }
  const std::string& key() const;  // the member's name; empty if this is no member

  // Elements, or members in the order of insertion; other values have none.
  std::size_t size() const { return is_array() || is_object() ? value_->size() : 0; }
  JsonNode operator[](std::size_t index) const;  // nothing if there are fewer
  JsonNode first() const { return (*this)[0]; }
  JsonNode last() const { return (*this)[size() - 1]; }
  JsonNode find(std::string_view name) const;  // a member, or nothing if absent
  // The JSON text on one line, members in the order of insertion; invalid UTF-8 becomes U+FFFD.
  // Nothing has an empty text.
  std::string dump() const;

  struct Iterator;
  // No members, which would make a node a JsonList.
  friend Iterator begin(const JsonNode& node);
  friend std::size_t end(const JsonNode& node) { return node.size(); }

 private:
  explicit JsonNode(const Json::Member& member) : value_(&member.second), key_(&member.first) {}

  const Json* value_ = nullptr;
  const std::string* key_ = nullptr;
};

struct JsonNode::Iterator {
  JsonNode node;
  std::size_t index;

  JsonNode operator*() const { return node[index]; }
  Iterator& operator++() { return ++index, *this; }
  bool operator==(std::size_t size) const { return index == size; }
};
inline JsonNode::Iterator begin(const JsonNode& node) { return {node, 0}; }

inline constexpr std::uint64_t kMaxJsonBytes = 256ull << 20;
inline constexpr int kMaxJsonDepth = 64;

// Limits of one JSON text: a value takes about fifty bytes of memory, however short its text is.
struct JsonLimits {
  std::uint64_t bytes = kMaxJsonBytes;  // largest length of the text
  std::uint64_t values = 8'000'000;     // containers included: a list of two texts counts 3
};
// For headers, which only list names and offsets of the data in a file.
inline constexpr JsonLimits kHeaderLimits = {.bytes = 100'000'000, .values = 2'000'000};

// Parses exactly one JSON value. Duplicate keys in an object are refused. Throws Error naming
// `source` and the offset or the key.
Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits = {});

// object[key] as T; throws Error naming `source` and the key if it is absent, has another type, or
// does not fit.
template <class T>
T json_get(const Json& object, const char* key, std::string_view source);
// Like json_get, but returns `fallback` if the key is absent or null.
template <class T>
T json_get_or(const Json& object, const char* key, T fallback, std::string_view source);

// The member, which must have the type; throws Error naming `source` and the key otherwise.
const Json& json_member(const Json& object, const char* key, Json::Type type,
                        std::string_view source);
// A whole number from `low` to `high`; throws Error naming `source` and the key otherwise.
std::int64_t json_whole(const Json& object, const char* key, std::int64_t low, std::int64_t high,
                        std::string_view source);

[[noreturn]] void json_type_error(const Json& object, const char* key, std::string_view source);

template <class T>
T json_get(const Json& object, const char* key, std::string_view source) {
  const Json* found = object.find(key);
  if (object.is_object() && found != object.end()) {
    if constexpr (std::is_same_v<T, bool>) {
      if (found->is_boolean()) return found->template get<T>();
    } else if constexpr (std::is_integral_v<T>) {
      if (found->is_number_unsigned()) {
        if (std::in_range<T>(found->template get<std::uint64_t>())) return found->template get<T>();
      } else if (found->is_number_integer()) {
        if (std::in_range<T>(found->template get<std::int64_t>())) return found->template get<T>();
      }
    } else if constexpr (std::is_floating_point_v<T>) {
      if (found->is_number()) return found->template get<T>();
    } else {
      if (found->is_string()) return found->template get<T>();
    }
  }
  json_type_error(object, key, source);
}

template <class T>
T json_get_or(const Json& object, const char* key, T fallback, std::string_view source) {
  return object.find_given(key) == nullptr ? fallback : json_get<T>(object, key, source);
}

}  // namespace leq
