// An HTTP server on one address. A connection waits for its next request in one thread that serves
// all of them (the event loop), and a worker gets a request only once it is complete: slow
// clients hold a socket but no worker thread.
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
  int connections = 1024;          // beyond them the one that has waited longest goes
  HttpLimits limits;
  std::uint64_t held_bytes = 256 << 20;    // of requests that are not there whole yet, together
  double request_seconds = 30;             // from a request's first byte to its last
  double idle_seconds = 60;                // between two requests
  double write_seconds = 30;               // in which a client takes nothing of its reply
  std::filesystem::path certificate, key;  // PEM; empty: no TLS
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  HttpHeaders headers;
};

// A request, and the way to answer it once, by reply() or as a stream.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual const HttpRequest& request() const = 0;
  virtual void reply(const HttpReply& reply) = 0;
  // `head`'s body comes piece by piece: each is sent at once. False where the client is gone.
  virtual bool begin_stream(const HttpReply& head) = 0;
  virtual bool write(std::string_view piece) = 0;
  virtual bool end_stream() = 0;
  // False once the client has closed the connection.
  virtual bool client_is_there() = 0;
};

// Called by several threads at once. What it throws is answered with status 500.
using HttpHandler = std::function<void(HttpExchange& exchange)>;
// What is answered where there is no request for the handler: its status and text.
using HttpFaultReply = std::function<HttpReply(const HttpFault& fault)>;

// Sees a request whose headers are there and whose body is still to come; what it returns is sent
// and the body is not read. Called by the thread that serves all who wait: it must not wait.
using HttpHeadCheck = std::function<std::optional<HttpReply>(const HttpRequest& request)>;

class HttpServer {
 public:
  // Takes the address. Throws Error naming it where that is not possible.
  HttpServer(const HttpOptions& options, HttpHandler handler, HttpFaultReply fault_reply,
             HttpHeadCheck head_check = {});
  // As stop().
  ~HttpServer();

  int port() const;
  // Takes no new connections and reads no more requests; returns when those that were read are
  // answered.
  void stop();

  // Now: all connections; those that wait for a request or send one; requests being answered.
  struct Counts {
    std::int64_t connections = 0, waiting = 0, answering = 0;
  };
  Counts counts() const;

 private:
  class EventLoop;
  std::unique_ptr<EventLoop> loop_;
};

}  // namespace leq
