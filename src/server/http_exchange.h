// A request that is being answered on its connection.
#pragma once

#include <string_view>
#include <utility>

#include "server/connection.h"
#include "server/http_server.h"

namespace leq {

// A reply's headers with its type and the date.
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

  // From now on the connection is not for another request.
  void close_after() { keep_alive_ = false; }

  bool begun() const { return begun_; }
  // All of the reply was sent, and another request may follow.
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
