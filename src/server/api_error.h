// Errors as clients of the OpenAI API know them: a status, and {"error": {"message", "type",
// "param", "code"}}.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http_server.h"

namespace leq {

// What is wrong with a request beside its body: no key, no such path, too many at once.
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

// {"error": ...} alone, for a stream that has begun; `code`, `param` may be empty.
std::string error_json(int status, std::string_view message, std::string_view param,
                       std::string_view code);
// {"type": "error", "error": {...}} as clients of /v1/messages know it.
std::string anthropic_error_json(int status, std::string_view message);
// The same as a reply. 503 asks to come again.
HttpReply error_reply(int status, std::string_view message, std::string_view param,
                      std::string_view code);
// Of what a handler threw: an Error by its kind and setting, anything else as 500.
HttpReply error_reply(const std::exception& error);
// The reply's error in the form of /v1/messages.
HttpReply anthropic_form(HttpReply reply);

}  // namespace leq
