#include "base/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostream>
#include <set>

#include "base/error.h"
#include "base/json_repair.h"
#include "base/text.h"

namespace leq {

// Builds a Json from the events of nlohmann-json's parser.
class JsonParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonParser(std::string_view text, std::string_view source, std::uint64_t max_values)
      : text_(text), source_(source), max_values_(max_values) {}

  Json parse() {
    nlohmann::json::sax_parse(text_.begin(), text_.end(), this);
    return std::move(root_);
  }
  // What the text says before its end or its first error.
  Json parse_as_far_as_valid() {
    repairs_ = true;
    nlohmann::json::sax_parse(text_.begin(), text_.end(), this);
    if (awaits_value_) open_object().members.pop_back();
    for (; !open_.empty(); open_.pop_back()) {
      if (open_.back()->is_object()) index_members();
    }
    return std::move(root_);
  }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has no binary values
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool key(string_t& name) override {
    open_object().members.emplace_back(name, Json());
    return awaits_value_ = true;
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool end_object() override {
    index_members();
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t offset, const std::string&,
                   const nlohmann::detail::exception& error) override {
    if (repairs_) return false;
    const bool syntax = dynamic_cast<const nlohmann::json::parse_error*>(&error) != nullptr;
    // `offset` counts the bytes read, with the one that is wrong.
    fail(source_, ": invalid JSON at offset ", offset - 1, " of ", text_.size(), " bytes",
         syntax ? "" : ": a number that is too large");
  }

 private:
  void index_members() {
    auto& [members, by_name] = open_object();
    if (repairs_) keep_last_of_equal(members);
    members.shrink_to_fit();
    by_name.resize(members.size());
    std::iota(by_name.begin(), by_name.end(), 0u);
    const std::vector<Json::Member>& all = members;
    const auto name = [&](std::uint32_t at) -> const std::string& { return all[at].first; };
    std::ranges::sort(by_name, {}, name);
    const auto twice = std::ranges::adjacent_find(by_name, {}, name);
    if (twice != by_name.end()) fail(source_, ": duplicate key \"", printable(name(*twice)), "\"");
  }
  static void keep_last_of_equal(std::vector<Json::Member>& members) {
    std::set<std::string> later;  // keys are chosen by clients: no hash table
    std::vector<Json::Member> kept;
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
      if (later.insert(member->first).second) kept.push_back(std::move(*member));
    }
    std::ranges::reverse(kept);
    members = std::move(kept);
  }
  bool add(Json value) {
    require(++values_ <= max_values_, source_, ": JSON of more than ", max_values_,
            " values; no such file needs so many, it may be damaged");
    place() = std::move(value);
    awaits_value_ = false;
    return true;
  }
  bool open(Json container) {
    add(std::move(container));
    // The pointer stays valid, as the holder gets no new element before this one is closed.
    open_.push_back(last_);
    return true;
  }
  // The place of the next value: the root, the last key's member, or the end of the open array.
  Json& place() {
    if (open_.empty()) return *(last_ = &root_);
    auto* const array = std::get_if<Json::Array>(&open_.back()->value_);
    last_ = array != nullptr ? &array->emplace_back() : &open_object().members.back().second;
    return *last_;
  }
  Json::Object& open_object() { return std::get<Json::Object>(open_.back()->value_); }

  Json root_;
  Json* last_ = nullptr;  // the value added last
  std::vector<Json*> open_;
  std::string_view text_, source_;
  std::uint64_t max_values_;
  std::uint64_t values_ = 0;
  bool repairs_ = false;
  bool awaits_value_ = false;  // after a key
};

namespace {

// Checks the nesting before the parser recurses or allocates, and refuses NUL characters, which the
// parser takes for the end of the text. Returns whether the text ends within a string.
bool check_shape(std::string_view text, std::string_view source) {
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
  return in_string;
}

// Writes containers itself and leaves numbers and strings to nlohmann, whose containers allocate
// memory even when they are destroyed.
class JsonWriter {
 public:
  JsonWriter(nlohmann::json::error_handler_t bad_text, bool by_name, int indent = -1,
             char filler = ' ')
      : bad_text_(bad_text), by_name_(by_name), indent_(indent), filler_(filler) {}

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
        return by_name_ ? add_members(json.items(), depth) : add_members(json.members(), depth);
    }
  }

  template <class Members>
  void add_members(const Members& members, int depth) {
    out_ += '{';
    bool more = false;
    for (const auto& [name, member] : members) {
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

  nlohmann::json::error_handler_t bad_text_;
  bool by_name_;
  int indent_;
  char filler_;
  std::string out_;
};

// The place in by_name of the first name that is not less than `name`.
std::ptrdiff_t place_of(const Json::Object& object, std::string_view name) {
  const auto name_at = [&](std::uint32_t at) -> std::string_view {
    return object.members[at].first;
  };
  return std::ranges::lower_bound(object.by_name, name, {}, name_at) - object.by_name.begin();
}

// The index of a member; nullopt if absent.
std::optional<std::uint32_t> index_of(const Json::Object& object, std::string_view name,
                                      std::ptrdiff_t place) {
  const auto at = static_cast<std::size_t>(place);
  if (at == object.by_name.size() || object.members[object.by_name[at]].first != name) return {};
  return object.by_name[at];
}

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
  Json object{Value(Object())};
  for (const Json& member : members) {
    const std::string& name = member.at(0u).text();
    if (!object.contains(name)) object[name] = member.at(1u);
  }
  return object;
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
  if (const auto* object = std::get_if<Object>(&value_)) return object->members.size();
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

bool Json::Object::operator==(const Object& other) const {
  const auto same = [&](std::uint32_t a, std::uint32_t b) {
    return members[a] == other.members[b];
  };
  return std::ranges::equal(by_name, other.by_name, same);
}

Json::ByName Json::items() const {
  const Object& object = members_of();
  const std::uint32_t* first = object.by_name.data();
  return {object.members.data(), first, first + object.by_name.size()};
}

const Json::Object& Json::members_of() const {
  static const Object none;
  if (const auto* object = std::get_if<Object>(&value_)) return *object;
  if (!is_null()) type_error("an object");
  return none;
}

const Json* Json::find(std::string_view key) const {
  if (const auto* object = std::get_if<Object>(&value_)) {
    if (const auto found = index_of(*object, key, place_of(*object, key)))
      return &object->members[*found].second;
  }
  return end();
}

Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

bool Json::contains(std::string_view key) const { return find(key) != end(); }

const Json* Json::find_given(std::string_view key) const {
  const Json* found = find(key);
  return found == end() || found->is_null() ? nullptr : found;
}

std::string Json::value(std::string_view key, const char* fallback) const {
  return value(key, std::string(fallback));
}

void Json::erase(std::string_view key) {
  if (!is_object()) type_error("an object");
  auto& [members, by_name] = std::get<Object>(value_);
  const std::ptrdiff_t place = place_of(std::get<Object>(value_), key);
  const auto index = index_of(std::get<Object>(value_), key, place);
  if (!index) return;
  members.erase(members.begin() + *index);
  by_name.erase(by_name.begin() + place);
  for (std::uint32_t& other : by_name) other -= other > *index ? 1 : 0;
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
  const std::ptrdiff_t place = place_of(object, key);
  if (const auto found = index_of(object, key, place)) return object.members[*found].second;
  object.by_name.insert(object.by_name.begin() + place,
                        static_cast<std::uint32_t>(object.members.size()));
  return object.members.emplace_back(key, Json()).second;
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
    return JsonWriter(nlohmann::json::error_handler_t::strict, true, indent, filler).write(*this);
  } catch (const nlohmann::json::exception&) {
    fail("JSON: holds text that is no valid UTF-8");
  }
}

std::string Json::dump_any(int indent, char filler) const {
  return JsonWriter(nlohmann::json::error_handler_t::replace, true, indent, filler).write(*this);
}

std::ostream& operator<<(std::ostream& out, const Json& json) { return out << json.dump_any(); }

Json parse_json(std::string_view text, std::string_view source, const JsonLimits& limits) {
  require(text.size() <= limits.bytes, source, ": JSON of ", text.size(), " bytes, at most ",
          limits.bytes, " are accepted");
  check_shape(text, source);
  return JsonParser(text, source, limits.values).parse();
}

Json repaired_object(std::string_view text) {
  try {
    const bool in_string = check_shape(text, "");
    const std::string closed = std::string(text) + (in_string ? "\"" : "");
    Json json = JsonParser(closed, "", JsonLimits().values).parse_as_far_as_valid();
    if (json.is_object()) return json;
  } catch (const Error&) {  // nested too deep
  }
  return Json::object();
}

const Json& JsonNode::value() const {
  require(value_ != nullptr, "JSON: a value is absent");
  return *value_;
}

std::optional<std::int64_t> JsonNode::whole() const {
  if (!is_number()) return std::nullopt;
  constexpr double kPast = 0x1p63;
  if (value_->is_number_float()) {
    const double number = value_->get<double>();
    if (number != std::floor(number) || number < -kPast || number >= kPast) return std::nullopt;
  } else if (value_->is_number_unsigned() && value_->get<std::uint64_t>() >> 63 != 0) {
    return std::nullopt;
  }
  return value_->get<std::int64_t>();
}

const std::string& JsonNode::key() const {
  static const std::string none;
  ensure(value_ != nullptr, "JSON: the name of a value that is absent");
  return key_ != nullptr ? *key_ : none;
}

JsonNode JsonNode::operator[](std::size_t index) const {
  if (index >= size()) return {};
  return is_array() ? JsonNode((*value_)[index]) : JsonNode(value_->members()[index]);
}

JsonNode JsonNode::find(std::string_view name) const {
  if (!is_object()) return {};
  const Json::Object& object = value_->members_of();
  const auto found = index_of(object, name, place_of(object, name));
  return found ? JsonNode(object.members[*found]) : JsonNode();
}

std::string JsonNode::dump() const {
  if (value_ == nullptr) return {};
  return JsonWriter(nlohmann::json::error_handler_t::replace, false).write(value());
}

const Json& json_member(const Json& object, const char* key, Json::Type type,
                        std::string_view source) {
  const Json* found = object.find(key);
  if (found == object.end() || found->type() != type) json_type_error(object, key, source);
  return *found;
}

std::int64_t json_whole(const Json& object, const char* key, std::int64_t low, std::int64_t high,
                        std::string_view source) {
  const auto value = json_get<std::int64_t>(object, key, source);
  require(value >= low && value <= high, source, ": '", key, "' is ", value,
          ", expected a number from ", low, " to ", high);
  return value;
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
