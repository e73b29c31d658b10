// Errors in the format of the OpenAI API: a status, and {"error": {"message", "type", "param",
// "code"}}.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http_server.h"

namespace leq {

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

}  // namespace leq
