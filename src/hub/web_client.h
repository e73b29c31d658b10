// HTTP requests for the hub; those of the server are in server/http.h. transport/curl.cpp sends
// them by libcurl, which it loads at the first request, because its thirty shared libraries would
// triple the start time of every tool; builds without libcurl have transport/no_curl.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace leq {

struct WebResponse {
  int status = 0;                              // 0: no response arrived
  std::map<std::string, std::string> headers;  // of the last response; names in lower case
  std::string body;                            // at most kMaxBodyBytes; empty if a receiver was set
  std::string failure;                         // empty: the response is complete

  // The header's value, or "" if it is absent.
  std::string header(const std::string& name) const;
};

inline constexpr std::size_t kMaxBodyBytes = 64u << 20;

struct WebRequest {
  std::string url;
  std::string token = {};   // bearer token, sent only to the host of `url`; empty: none
  bool proxies = true;      // those of the environment: https_proxy, no_proxy ...
  bool head = false;        // HEAD, whose redirects are not followed, instead of GET
  std::uint64_t first = 0;  // the first byte of the body that is wanted
  std::uint64_t end = 0;    // the first one after it that is not; 0: all are wanted
  // Receives the body in parts, with the response's status and headers.
  std::function<void(const WebResponse& response, std::span<const std::byte> part)> receive = {};
};

// A client for requests one after another, which keeps connections open. SSL_CERT_FILE names
// another list of certificates.
class WebClient {
 public:
  // Throws Error if this build or machine has no libcurl.
  WebClient();
  ~WebClient();
  WebClient(const WebClient&) = delete;
  WebClient& operator=(const WebClient&) = delete;

  // Failures of the network are returned in the response. Throws what `receive` throws.
  WebResponse send(const WebRequest& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace leq
