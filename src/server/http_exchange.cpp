#include "server/http_exchange.h"

#include <ctime>
#include <string>

#include "base/error.h"

namespace leq {
namespace {

constexpr std::size_t kTogetherBytes = 64 << 10;  // largest body sent together with its head

}  // namespace

HttpHeaders sent_headers(const HttpReply& reply) {
  HttpHeaders headers = reply.headers;
  if (!reply.type.empty()) headers.emplace_back("Content-Type", reply.type);
  headers.emplace_back("Date", http_date(std::time(nullptr)));
  return headers;
}

bool SocketExchange::send(std::string_view text) {
  if (is_sound_) is_sound_ = connection_.write_all(text, patience_);
  return is_sound_;
}

void SocketExchange::reply(const HttpReply& reply) {
  ensure(!begun_, "http: a second reply to one request");
  begun_ = ended_ = true;
  const bool has_body = reply.status != 204;
  const HttpBody body = {has_body ? HttpBody::Framing::length : HttpBody::Framing::none,
                         reply.body.size()};
  std::string text = response_head(reply.status, sent_headers(reply), body, keep_alive_);
  if (!has_body || request_.method == "HEAD" || reply.body.size() > kTogetherBytes) {
    send(text);
    text.clear();
  }
  if (!has_body || request_.method == "HEAD") return;
  if (text.empty()) {
    send(reply.body);  // sent separately, to avoid copying a large body
  } else {
    send(text + reply.body);
  }
}

bool SocketExchange::begin_stream(const HttpReply& head) {
  ensure(!begun_, "http: a second reply to one request");
  begun_ = true;
  if (!request_.takes_chunks) keep_alive_ = false;
  const HttpBody body = {request_.takes_chunks ? HttpBody::Framing::chunks
                                               : HttpBody::Framing::none};
  return send(response_head(head.status, sent_headers(head), body, keep_alive_));
}

bool SocketExchange::write(std::string_view piece) {
  if (piece.empty()) return is_sound_;  // an empty chunk would mean the end
  return send(request_.takes_chunks ? http_chunk(piece) : std::string(piece));
}

bool SocketExchange::end_stream() {
  if (request_.takes_chunks) send(http_chunk(""));
  ended_ = true;
  return is_sound_;
}

}  // namespace leq
