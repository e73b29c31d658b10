#include "server/fields.h"

#include <cmath>
#include <new>
#include <utility>

#include "base/text.h"
#include "runtime/engine_thread.h"

namespace leq {

Json parse_request_object(std::string_view body, std::string_view what) {
  require(!trim(body).empty(), ErrorKind::bad_input, what, " is empty; expected a JSON object");
  Json tree = parse_json(body, what, kBodyLimits);
  require(tree.is_object(), ErrorKind::bad_input, what, ": expected a JSON object");
  return tree;
}

std::string marked_field(std::string_view name) { return Setting{name}.marked(); }

void field_error(std::string_view name, std::string_view what) {
  throw Error(marked_field(name) + ": " + std::string(what), ErrorKind::bad_setting);
}

void field_error(std::string_view name, std::string_view expected, JsonNode found) {
  constexpr std::size_t kShownBytes = 60;
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

namespace {

constexpr std::string_view kRetrySeconds = "2";

std::string_view error_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 404) return "not_found_error";
  if (status == 503) return "unavailable_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

int status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::bad_input:
    case ErrorKind::bad_setting:
      return 400;
    case ErrorKind::no_memory:
    case ErrorKind::interrupted:
      return 503;
    case ErrorKind::no_device:
    case ErrorKind::io:
    case ErrorKind::internal:
      break;
  }
  return 500;
}

std::string_view anthropic_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

Json text_or_null(std::string_view text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

std::string error_json(int status, std::string_view message, std::string_view param,
                       std::string_view code) {
  const Json error = {{"message", message},
                      {"type", error_type(status)},
                      {"param", text_or_null(param)},
                      {"code", text_or_null(code)}};
  return Json::object({{"error", error}}).dump_any();
}

HttpReply error_reply(int status, std::string_view message, std::string_view param,
                      std::string_view code) {
  HttpReply reply;
  reply.status = status;
  reply.body = error_json(status, message, param, code);
  if (status == 503) reply.headers.emplace_back("Retry-After", kRetrySeconds);
  if (status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

HttpReply error_reply(const std::exception& error) {
  if (const auto* api = dynamic_cast<const ApiError*>(&error)) {
    HttpReply reply = error_reply(api->status(), api->what(), "", api->code());
    reply.headers.insert(reply.headers.end(), api->headers().begin(), api->headers().end());
    return reply;
  }
  if (const auto* busy = dynamic_cast<const Busy*>(&error)) {
    return error_reply(503, busy->what(), "",
                       busy->shutting_down() ? "shutting_down" : "queue_full");
  }
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    const bool setting = known->kind() == ErrorKind::bad_setting;
    return error_reply(status_of(known->kind()), known->what(), setting ? known->setting() : "",
                       "");
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return error_reply(503, "out of memory", "", "");
  }
  return error_reply(500, error.what(), "", "");
}

std::string anthropic_error_json(int status, std::string_view message) {
  return Json{{"type", "error"},
              {"error", {{"type", anthropic_type(status)}, {"message", message}}}}
      .dump_any();
}

HttpReply anthropic_form(HttpReply reply) {
  const Json json = parse_json(reply.body, "an error");
  reply.body = anthropic_error_json(reply.status, json["error"]["message"].text());
  return reply;
}

HttpReply ollama_form(HttpReply reply) {
  const Json json = parse_json(reply.body, "an error");
  reply.body = Json::object({{"error", json["error"]["message"].text()}}).dump_any();
  return reply;
}

}  // namespace leq
