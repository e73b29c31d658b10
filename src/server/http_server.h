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

#include "server/http_message.h"

namespace leq {

struct HttpOptions {
  std::string host = "127.0.0.1";  // a name or an address
  int port = 8080;                 // 0: any that is free
  int workers = 16;                // most requests that are answered at once; threads as needed
  int connections = 1024;          // beyond it the one that has waited longest is closed
  HttpLimits limits;
  std::uint64_t held_bytes = 256 << 20;    // of all incomplete requests together
  double request_seconds = 30;             // from a request's first byte to its last
  double idle_seconds = 60;                // between two requests
  double write_seconds = 30;               // longest time without progress of a write
  std::filesystem::path certificate, key;  // PEM; empty: no TLS
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  HttpHeaders headers;
};

// A request that is to be answered once, by reply() or as a stream.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;
  virtual void reply(const HttpReply& reply) = 0;
  // Starts a reply whose body is sent in pieces, each at once. False where the client is gone.
  virtual bool begin_stream(const HttpReply& head) = 0;
  virtual bool write(std::string_view piece) = 0;
  virtual bool end_stream() = 0;
  // False once the client has closed the connection.
  virtual bool client_is_there() = 0;
};

// Called by several threads concurrently. An exception is answered with status 500.
using HttpHandler = std::function<void(HttpExchange& exchange)>;
// Makes the reply to an error that occurs outside the handler, from its status and text.
using HttpFaultReply = std::function<HttpReply(const HttpFault& fault)>;

// Checks a request with complete headers before its body is read; a reply it returns is sent and
// the body is discarded. Called in the event loop thread: it must not block.
using HttpHeadCheck = std::function<std::optional<HttpReply>(const HttpRequest& request)>;

class HttpServer {
 public:
  // Binds the address. Throws Error naming it where that fails.
  HttpServer(const HttpOptions& options, HttpHandler handler, HttpFaultReply fault_reply,
             HttpHeadCheck head_check = {});
  // Calls stop().
  ~HttpServer();

  int port() const;
  // Accepts no new connections and no more requests; returns when the requests in work are
  // answered.
  void stop();

  // Current numbers: all connections; those idle or sending a request; requests in work.
  struct Counts {
    std::int64_t connections = 0, waiting = 0, answering = 0;
  };
  Counts counts() const;

 private:
  class EventLoop;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace leq
