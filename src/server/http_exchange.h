// One request on a connection, and its reply.
#pragma once

#include <string_view>
#include <utility>

#include "server/connection.h"
#include "server/http_server.h"

namespace leq {

// The reply's headers, plus Content-Type and Date.
HttpHeaders sent_headers(const HttpReply& reply);

class SocketExchange : public HttpExchange {
 public:
  // `connection` must outlive the exchange.
  SocketExchange(Connection& connection, HttpRequest request, const HttpOptions& options)
      : connection_(connection),
        request_(std::move(request)),
        patience_(options.write_seconds),
        keep_alive_(request_.keep_alive) {}

  const HttpRequest& request() const override { return request_; }
  void reply(const HttpReply& reply) override;
  bool begin_stream(const HttpReply& head) override;
  bool write(std::string_view piece) override;
  bool end_stream() override;
  bool client_is_there() override { return is_sound_ && connection_.is_open(); }

  // Requests that the connection be closed after this reply.
  void close_after() { keep_alive_ = false; }

  bool begun() const { return begun_; }
  // Whether the whole reply was sent and the connection stays open for another request.
  bool may_go_on() const { return ended_ && is_sound_ && keep_alive_; }
  bool is_sound() const { return is_sound_; }

 private:
  bool send(std::string_view text);

  Connection& connection_;
  HttpRequest request_;
  double patience_;
  bool keep_alive_;
  bool begun_ = false, ended_ = false, is_sound_ = true;
};

}  // namespace leq
