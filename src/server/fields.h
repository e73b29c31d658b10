// Members of a request's JSON object with their types and ranges checked, and errors in the format
// of the OpenAI API: a status, and {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "server/http.h"

namespace leq {

// Limits on a body's JSON, which together with the limits on HTTP bound its memory.
inline constexpr JsonLimits kBodyLimits = {.bytes = 64 << 20, .values = 300'000};

// Parses a request's body, or another text of the name `what`. Throws Error if it is not a JSON
// object.
Json parse_request_object(std::string_view body, std::string_view what = "the request body");

// These throw Error naming the member if it is present but has another type. null counts as absent.
std::optional<double> number_field(JsonNode object, std::string_view name);
std::optional<std::int64_t> whole_field(JsonNode object, std::string_view name, std::int64_t least,
                                        std::int64_t most);
bool flag_field(JsonNode object, std::string_view name);  // false if absent
std::optional<std::string> text_field(JsonNode object, std::string_view name);
// Reads one text, or an array of at most `most` texts.
std::vector<std::string> texts_field(JsonNode object, std::string_view name, std::size_t most);
// The member, or nothing if it is absent or null.
JsonNode given_field(JsonNode object, std::string_view name);
// The member, which must be an object, or nothing if it is absent.
JsonNode object_field(JsonNode object, std::string_view name);

// Marks a member's name at the start of an error message, so that the error refers to it.
std::string marked_field(std::string_view name);
// Throws an error about a member: "max_tokens: expected ..., found ...".
[[noreturn]] void field_error(std::string_view name, std::string_view expected, JsonNode found);
[[noreturn]] void field_error(std::string_view name, std::string_view what);

// An error that does not concern a member of the body: no key, unknown path, too many requests.
class ApiError : public Error {
 public:
  ApiError(int status, const std::string& text, std::string code, HttpHeaders headers = {})
      : Error(text), status_(status), code_(std::move(code)), headers_(std::move(headers)) {}

  int status() const { return status_; }
  const std::string& code() const { return code_; }
  const HttpHeaders& headers() const { return headers_; }

 private:
  int status_;
  std::string code_;
  HttpHeaders headers_;
};

// The JSON {"error": ...}, for a stream that has already begun; `code`, `param` may be empty.
std::string error_json(int status, std::string_view message, std::string_view param,
                       std::string_view code);
// The JSON {"type": "error", "error": {...}}, which is the format of /v1/messages.
std::string anthropic_error_json(int status, std::string_view message);
// The same error as a complete reply. Status 503 adds a Retry-After header.
HttpReply error_reply(int status, std::string_view message, std::string_view param,
                      std::string_view code);
// The reply to a handler's exception: an Error by its kind and setting, any other with 500.
HttpReply error_reply(const std::exception& error);
// Converts the reply's error to the format of /v1/messages.
HttpReply anthropic_form(HttpReply reply);
// Converts the reply's error to Ollama's format, {"error": "..."}.
HttpReply ollama_form(HttpReply reply);

}  // namespace leq
