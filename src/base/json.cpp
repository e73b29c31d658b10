#include "base/json.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <ostream>

#include "base/error.h"
#include "base/json_events.h"
#include "base/text.h"

namespace leq {
namespace {

// Adapts nlohmann-json's parser to JsonEvents.
class Parser : public nlohmann::json_sax<nlohmann::json> {
 public:
  Parser(JsonEvents& events, std::string_view text, std::string_view source,
         std::uint64_t max_values)
      : events_(events), text_(text), source_(source), max_values_(max_values) {}

  bool null() override { return leaf(nullptr); }
  bool boolean(bool value) override { return leaf(value); }
  bool number_integer(number_integer_t value) override { return leaf(value); }
  bool number_unsigned(number_unsigned_t value) override { return leaf(value); }
  bool number_float(number_float_t value, const string_t&) override { return leaf(value); }
  bool string(string_t& value) override { return leaf(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has no binary values
  bool start_array(std::size_t) override { return open(Json::Type::array); }
  bool start_object(std::size_t) override { return open(Json::Type::object); }
  bool key(string_t& name) override {
    events_.key(std::move(name));
    return true;
  }
  bool end_array() override { return close(); }
  bool end_object() override { return close(); }
  bool parse_error(std::size_t offset, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const bool syntax = dynamic_cast<const nlohmann::json::parse_error*>(&error) != nullptr;
    fail(source_, ": invalid JSON at offset ", offset, " of ", text_.size(), " bytes",
         syntax ? "" : ": a number that is too large");
  }

 private:
  void count() {
    require(++values_ <= max_values_, source_, ": JSON of more than ", max_values_,
            " values; no such file needs so many, it may be damaged");
  }
  bool leaf(Json value) {
    count();
    events_.leaf(std::move(value));
    return true;
  }
  bool open(Json::Type type) {
    count();
    events_.open(type);
    return true;
  }
  bool close() {
    events_.close();
    return true;
  }

  JsonEvents& events_;
  std::string_view text_, source_;
  std::uint64_t max_values_;
  std::uint64_t values_ = 0;
};

class Builder : public JsonEvents {
 public:
  Builder(Json& root, std::string_view source) : place_(&root), source_(source) {}

  void leaf(Json value) override { place() = std::move(value); }
  void open(Json::Type type) override {
    Json& at = place();
    at = type == Json::Type::array ? Json::array() : Json::object();
    // The pointer stays valid, as its container gets no new element before this one is closed.
    open_.push_back(&at);
  }
  void key(std::string name) override {
    Json& object = *open_.back();
    const std::size_t before = object.size();
    place_ = &object[name];
    require(object.size() > before, source_, ": duplicate key \"", printable(name), "\"");
  }
  void close() override { open_.pop_back(); }

 private:
  // The place of the next value: the root, the last key's member, or the end of the open array.
  Json& place() {
    if (open_.empty() || !open_.back()->is_array()) return *place_;
    open_.back()->push_back(nullptr);
    return open_.back()->end()[-1];
  }

  Json* place_;
  std::vector<Json*> open_;
  std::string_view source_;
};

// Checks the nesting before the parser recurses or allocates, and refuses NUL characters, which the
// parser takes for the end of the text.
void check_shape(std::string_view text, std::string_view source) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      require(++depth <= kMaxJsonDepth, source, ": JSON nested deeper than ", kMaxJsonDepth,
              " at offset ", i);
    } else if (c == '}' || c == ']') {
      --depth;
    } else {
      require(c != '\0', source, ": invalid JSON at offset ", i, " of ", text.size(),
              " bytes: a byte 0");
    }
  }
}

// Writes containers itself and leaves numbers and strings to nlohmann, whose containers allocate
// memory even when they are destroyed.
class JsonWriter {
 public:
  JsonWriter(int indent, char filler, nlohmann::json::error_handler_t bad_text)
      : indent_(indent), filler_(filler), bad_text_(bad_text) {}

  std::string write(const Json& json) {
    add(json, 0);
    return std::move(out_);
  }

 private:
  void add(const Json& json, int depth) {
    switch (json.type()) {
      case Json::Type::null:
        out_ += "null";
        return;
      case Json::Type::boolean:
        out_ += json.get<bool>() ? "true" : "false";
        return;
      case Json::Type::number_integer:
        return add_leaf(json.get<std::int64_t>());
      case Json::Type::number_unsigned:
        return add_leaf(json.get<std::uint64_t>());
      case Json::Type::number_float:
        return add_leaf(json.get<double>());
      case Json::Type::string:
        return add_leaf(json.text());
      case Json::Type::array:
        out_ += '[';
        for (const Json& element : json) {
          begin_line(&element != json.begin(), depth + 1);
          add(element, depth + 1);
        }
        return close(']', json.size() > 0, depth);
      case Json::Type::object:
        add_members(json, depth);
        return;
    }
  }

  void add_members(const Json& json, int depth) {
    out_ += '{';
    bool more = false;
    for (const auto& [name, member] : json.items()) {
      begin_line(more, depth + 1);
      more = true;
      add_leaf(name);
      out_ += indent_ >= 0 ? ": " : ":";
      add(member, depth + 1);
    }
    close('}', more, depth);
  }

  void add_leaf(const nlohmann::json& leaf) { out_ += leaf.dump(-1, ' ', false, bad_text_); }

  void begin_line(bool more, int depth) {
    if (more) out_ += ',';
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(indent_ * depth), filler_);
  }
  void close(char bracket, bool filled, int depth) {
    if (filled) begin_line(false, depth);
    out_ += bracket;
  }

  int indent_;
  char filler_;
  nlohmann::json::error_handler_t bad_text_;
  std::string out_;
};

}  // namespace

Json::Json() = default;
Json::Json(std::nullptr_t) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(std::string_view value) : value_(std::string(value)) {}
Json::Json(Value value) : value_(std::move(value)) {}
Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
Json::~Json() = default;

Json& Json::operator=(Json other) noexcept {
  value_.swap(other.value_);
  return *this;
}

Json::Json(std::initializer_list<Json> elements) {
  const bool members = std::ranges::all_of(elements, [](const Json& element) {
    return element.is_array() && element.size() == 2 && element[0].is_string();
  });
  *this = members ? object(elements) : array(elements);
}

Json Json::array(std::initializer_list<Json> elements) { return Json(Value(Array(elements))); }

Json Json::object(std::initializer_list<Json> members) {
  Object object;
  for (const Json& member : members) object.emplace(member.at(0u).text(), member.at(1u));
  return Json(Value(std::move(object)));
}

const char* Json::type_name() const {
  constexpr std::array kNames{"null",   "boolean", "number", "number",
                              "number", "string",  "array",  "object"};
  return kNames[value_.index()];
}

void Json::type_error(const char* expected) const {
  fail("JSON: expected ", expected, ", found ", type_name());
}

const std::string& Json::text() const {
  if (const auto* text = std::get_if<std::string>(&value_)) return *text;
  type_error("a string");
}

std::size_t Json::size() const {
  if (const auto* array = std::get_if<Array>(&value_)) return array->size();
  if (const auto* object = std::get_if<Object>(&value_)) return object->size();
  return is_null() ? 0 : 1;
}

const Json* Json::begin() const {
  if (const auto* array = std::get_if<Array>(&value_)) return array->data();
  if (!is_null()) type_error("an array");
  return nullptr;
}

const Json* Json::end() const {
  const auto* array = std::get_if<Array>(&value_);
  return array != nullptr ? array->data() + array->size() : nullptr;
}

Json* Json::begin() { return const_cast<Json*>(std::as_const(*this).begin()); }
Json* Json::end() { return const_cast<Json*>(std::as_const(*this).end()); }

void Json::push_back(Json element) {
  if (is_null()) value_ = Array();
  if (!is_array()) type_error("an array");
  std::get<Array>(value_).push_back(std::move(element));
}

const Json::Object& Json::items() const {
  static const Object none;
  if (const auto* object = std::get_if<Object>(&value_)) return *object;
  if (!is_null()) type_error("an object");
  return none;
}

const Json* Json::find(std::string_view key) const {
  if (const auto* object = std::get_if<Object>(&value_)) {
    const auto found = object->find(key);
    if (found != object->end()) return &found->second;
  }
  return end();
}

Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

bool Json::contains(std::string_view key) const { return find(key) != end(); }

std::string Json::value(std::string_view key, const char* fallback) const {
  return value(key, std::string(fallback));
}

void Json::erase(std::string_view key) {
  if (!is_object()) type_error("an object");
  auto& object = std::get<Object>(value_);
  if (const auto found = object.find(key); found != object.end()) object.erase(found);
}

void Json::update(const Json& members) {
  for (const auto& [name, member] : members.items()) (*this)[name] = member;
}

const Json& Json::at(std::string_view key) const {
  if (!is_object()) type_error("an object");
  const Json* found = find(key);
  require(found != end(), "JSON: key \"", printable(key), "\" is missing");
  return *found;
}

const Json& Json::at(std::size_t index) const {
  if (!is_array()) type_error("an array");
  const auto& array = std::get<Array>(value_);
  require(index < array.size(), "JSON: element ", index, " of an array of ", array.size());
  return array[index];
}

Json& Json::at(std::string_view key) { return const_cast<Json&>(std::as_const(*this).at(key)); }
Json& Json::at(std::size_t index) { return const_cast<Json&>(std::as_const(*this).at(index)); }

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  if (!is_object()) type_error("an object");
  auto& object = std::get<Object>(value_);
  const auto found = object.lower_bound(key);
  if (found != object.end() && found->first == key) return found->second;
  return object.emplace_hint(found, key, Json())->second;
}

bool operator==(const Json& a, const Json& b) {
  if (a.type() == b.type()) return a.value_ == b.value_;
  if (!a.is_number() || !b.is_number()) return false;
  if (a.is_number_float() || b.is_number_float()) return a.get<double>() == b.get<double>();
  const auto negative = [](const Json& json) {
    const auto* value = std::get_if<std::int64_t>(&json.value_);
    return value != nullptr && *value < 0;
  };
  return !negative(a) && !negative(b) && a.get<std::uint64_t>() == b.get<std::uint64_t>();
}

std::string Json::dump(int indent, char filler) const {
  try {
    return JsonWriter(indent, filler, nlohmann::json::error_handler_t::strict).write(*this);
  } catch (const nlohmann::json::exception&) {
    fail("JSON: holds text that is no valid UTF-8");
  }
}

std::string Json::dump_any(int indent, char filler) const {
  return JsonWriter(indent, filler, nlohmann::json::error_handler_t::replace).write(*this);
}

std::ostream& operator<<(std::ostream& out, const Json& json) { return out << json.dump_any(); }

void read_json(std::string_view text, std::string_view source, const JsonLimits& limits,
               JsonEvents& events) {
  require(text.size() <= limits.bytes, source, ": JSON of ", text.size(), " bytes, at most ",
          limits.bytes, " are accepted");
  check_shape(text, source);
  Parser parser(events, text, source, limits.values);
  nlohmann::json::sax_parse(text.begin(), text.end(), &parser);
}

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  Json json;
  Builder builder(json, source);
  read_json(text, source, limits, builder);
  return json;
}

void json_type_error(const Json& object, const char* key, std::string_view source) {
  if (!object.is_object()) fail(source, ": expected a JSON object, found ", object.type_name());
  const Json* found = object.find(key);
  if (found == object.end()) fail(source, ": key \"", key, "\" is missing");
  if (found->is_number())
    fail(source, ": key \"", key, "\" has an unexpected value, ", found->dump());
  fail(source, ": key \"", key, "\" has an unexpected type, found ", found->type_name());
}

}  // namespace leq
