#include "server/api_fields.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::size_t kShownBytes = 60;

}  // namespace

Json parse_request_body(std::string_view body) {
  require(!trim(body).empty(), ErrorKind::bad_input,
          "the request body is empty; expected a JSON object");
  return parse_json(body, "the request body", kBodyLimits);
}

Json parse_request_object(std::string_view body) {
  Json tree = parse_request_body(body);
  require(tree.is_object(), ErrorKind::bad_input, "the request body: expected a JSON object");
  return tree;
}

std::string marked_field(std::string_view name) { return Setting{name}.marked(); }

void field_error(std::string_view name, std::string_view what) {
  throw Error(marked_field(name) + ": " + std::string(what), ErrorKind::bad_setting);
}

void field_error(std::string_view name, std::string_view expected, JsonNode found) {
  const std::string shown = found ? printable(found.dump(), kShownBytes) : "nothing";
  field_error(name, "expected " + std::string(expected) + ", found " + shown);
}

JsonNode given_field(JsonNode object, std::string_view name) {
  if (!object) return {};
  const JsonNode found = object.find(name);
  return found && !found.is_null() ? found : JsonNode();
}

JsonNode object_field(JsonNode object, std::string_view name) {
  const JsonNode found = given_field(object, name);
  if (found && !found.is_object()) field_error(name, "an object", found);
  return found;
}

std::optional<double> number_field(JsonNode object, std::string_view name) {
  const JsonNode found = given_field(object, name);
  if (!found) return std::nullopt;
  if (!found.is_number() || !std::isfinite(found.number())) field_error(name, "a number", found);
  return found.number();
}

std::optional<std::int64_t> whole_field(JsonNode object, std::string_view name, std::int64_t least,
                                        std::int64_t most) {
  const JsonNode found = given_field(object, name);
  if (!found) return std::nullopt;
  const auto value = found.is_number() ? found.whole() : std::nullopt;
  if (!value || *value < least || *value > most) {
    field_error(name,
                "a whole number from " + std::to_string(least) + " to " + std::to_string(most),
                found);
  }
  return value;
}

bool flag_field(JsonNode object, std::string_view name) {
  const JsonNode found = given_field(object, name);
  if (!found) return false;
  if (!found.is_boolean()) field_error(name, "true or false", found);
  return found.boolean();
}

std::optional<std::string> text_field(JsonNode object, std::string_view name) {
  const JsonNode found = given_field(object, name);
  if (!found) return std::nullopt;
  if (!found.is_string()) field_error(name, "a string", found);
  return found.text();
}

std::vector<std::string> texts_field(JsonNode object, std::string_view name, std::size_t most) {
  const JsonNode found = given_field(object, name);
  if (!found) return {};
  if (found.is_string()) return {found.text()};
  const std::string expected =
      "a string or an array of at most " + std::to_string(most) + " strings";
  if (!found.is_array() || found.size() > most) field_error(name, expected, found);
  std::vector<std::string> texts;
  for (const JsonNode one : found) {
    if (!one.is_string()) field_error(name, expected, found);
    texts.push_back(one.text());
  }
  return texts;
}

}  // namespace leq
