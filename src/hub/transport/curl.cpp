// The HTTP client by libcurl.
#include <cstdlib>
#include <exception>

#include "base/ascii.h"
#include "base/error.h"
#include "base/text.h"
#include "base/version.h"
#include "hub/transport/curl_calls.h"
#include "hub/web_client.h"

namespace leq {
namespace {

constexpr long kMaxRedirects = 10;
constexpr long kConnectSeconds = 20;
constexpr long kSilentSeconds = 60;  // a connection without data for so long is given up

const CurlCalls& curl() {
  static const CurlCalls calls = [] {
    CurlCalls found = find_curl();
    require(found.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, ErrorKind::io,
            "libcurl: cannot be initialized");
    return found;
  }();
  return calls;
}

// A request in progress, as libcurl's callbacks see it. Exceptions must not pass through libcurl.
struct Transfer {
  const WebRequest& request;
  WebResponse response = {};
  std::exception_ptr thrown = {};
};

std::size_t take_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const std::string_view line = trim({data, size * count});
  if (line.starts_with("HTTP/")) {  // the next response, after a redirect or a proxy's answer
    const auto parts = split(line, " ");
    transfer.response = {};
    if (parts.size() > 1) {
      transfer.response.status = static_cast<int>(parse_int(parts[1]).value_or(0));
    }
  } else if (const auto colon = line.find(':'); colon != std::string_view::npos) {
    transfer.response.headers[ascii_lower(line.substr(0, colon))] = trim(line.substr(colon + 1));
  }
  return size * count;
}

std::size_t take_body(char* data, std::size_t size, std::size_t count, void* user) {
  auto& [request, response, thrown] = *static_cast<Transfer*>(user);
  const std::size_t bytes = size * count;
  try {
    if (request.receive) {
      request.receive(response, std::as_bytes(std::span(data, bytes)));
    } else {
      require(response.body.size() + bytes <= kMaxBodyBytes, request.url,
              ": the answer is longer than ", kMaxBodyBytes, " bytes");
      response.body.append(data, bytes);
    }
  } catch (...) {
    thrown = std::current_exception();
    return 0;  // libcurl ends the transfer
  }
  return bytes;
}

}  // namespace

struct WebClient::State {
  CURL* handle = nullptr;
};

WebClient::WebClient() : state_(std::make_unique<State>()) {
  state_->handle = curl().init();
  require(state_->handle != nullptr, ErrorKind::no_memory, "libcurl: cannot make a handle");
}

WebClient::~WebClient() { curl().cleanup(state_->handle); }

WebResponse WebClient::send(const WebRequest& request) {
  CURL* const handle = state_->handle;
  curl().reset(handle);  // keeps connections
  Transfer transfer = {request};
  const auto set = [&](CURLoption option, auto value) { curl().set(handle, option, value); };
  const bool secure = request.url.starts_with("https:");
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_USERAGENT, (std::string("leq/") + kVersion).c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_NOBODY, request.head ? 1L : 0L);
  set(CURLOPT_FOLLOWLOCATION, request.head ? 0L : 1L);
  set(CURLOPT_MAXREDIRS, kMaxRedirects);
  set(CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
  set(CURLOPT_REDIR_PROTOCOLS,
      static_cast<long>(secure ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS));
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
  set(CURLOPT_HEADERFUNCTION, take_header);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, take_body);
  set(CURLOPT_WRITEDATA, &transfer);
  const char* const chosen = std::getenv("SSL_CERT_FILE");
  const std::string certificates = chosen != nullptr ? chosen : curl().certificates;
  if (!certificates.empty()) set(CURLOPT_CAINFO, certificates.c_str());
  if (!request.proxies) set(CURLOPT_NOPROXY, "*");
  if (request.first > 0 || request.end > 0) {
    const std::string last = request.end > 0 ? std::to_string(request.end - 1) : "";
    set(CURLOPT_RANGE, (std::to_string(request.first) + "-" + last).c_str());
  }
  if (!request.token.empty()) {  // libcurl sends it to the first host alone
    set(CURLOPT_HTTPAUTH, static_cast<long>(CURLAUTH_BEARER));
    set(CURLOPT_XOAUTH2_BEARER, request.token.c_str());
  }
  // Without compression, so that sizes are the files'.
  curl_slist* const headers = curl().append(nullptr, "Accept-Encoding: identity");
  set(CURLOPT_HTTPHEADER, headers);
  const CURLcode code = curl().perform(handle);
  curl().free_list(headers);
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  if (code != CURLE_OK) transfer.response.failure = curl().text(code);
  return std::move(transfer.response);
}

}  // namespace leq
