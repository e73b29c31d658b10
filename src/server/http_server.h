// An HTTP server on one address. Connections wait for their next request in one event loop thread;
// a worker thread gets a request only once it is complete: a slow client occupies a socket but no
// worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http.h"

namespace leq {

struct HttpOptions {
  std::string host = "127.0.0.1";  // a host name or an IP address
  int port = 8080;                 // 0: any free port
  int workers = 16;                // maximum number of requests answered concurrently
  int connections = 1024;          // if exceeded, the longest idle one is closed
  HttpLimits limits;
  std::uint64_t held_bytes = 256 << 20;    // limit for all incomplete requests together
  double request_seconds = 30;             // from the first to the last byte of a request
  double idle_seconds = 60;                // between two requests
  double write_seconds = 30;               // limit of a write without progress
  std::filesystem::path certificate, key;  // PEM; empty: no TLS
};

// Called concurrently by several threads. An exception is answered with status 500.
using HttpHandler = std::function<void(HttpExchange& exchange)>;
// Creates the reply to an error outside of the handler, from its status and text. Of the request
// there is what has arrived.
using HttpFaultReply = std::function<HttpReply(const HttpRequest& request, const HttpFault& fault)>;

// Checks a request's head before its body is read. If it returns a reply, this is sent and the body
// is discarded. Called in the event loop's thread, so it must not block.
using HttpHeadCheck = std::function<std::optional<HttpReply>(const HttpRequest& request)>;

class HttpServer {
 public:
  // Binds the address. Throws Error naming the address if that fails.
  HttpServer(const HttpOptions& options, HttpHandler handler, HttpFaultReply fault_reply,
             HttpHeadCheck head_check = {});
  // Calls stop().
  ~HttpServer();

  int port() const;
  // Stops accepting connections and requests; returns when the requests in progress are
  // answered.
  void stop();

  // Current numbers: connections; connections idle or sending a request; requests in progress.
  struct Counts {
    std::int64_t connections = 0, waiting = 0, answering = 0;
  };
  Counts counts() const;

 private:
  class EventLoop;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace leq
