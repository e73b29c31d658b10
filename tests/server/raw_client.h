// A socket that sends bytes unchanged and reads the reply, for requests that no usual client sends.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <string_view>

namespace leq::test {

class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { close(); }
  RawClient(RawClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), connected_(other.connected_) {}
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  // Reads until `end` is received, the peer closes, or `seconds` have passed.
  std::string read_until(std::string_view end, double seconds = 120) {
    using Clock = std::chrono::steady_clock;
    const auto last = Clock::now() + std::chrono::duration<double>(seconds);
    while (received_.find(end) == std::string::npos && Clock::now() < last) {
      pollfd waiting = {socket_, POLLIN, 0};
      if (::poll(&waiting, 1, 100) <= 0) continue;
      char buffer[4096];
      const ssize_t got = ::recv(socket_, buffer, sizeof buffer, 0);
      if (got <= 0) break;
      received_.append(buffer, static_cast<std::size_t>(got));
    }
    return received_;
  }
  std::string read_all(double seconds = 120) { return read_until("\x01never", seconds); }
  void forget() { received_.clear(); }
  // Returns whether the peer closes within `seconds`.
  bool is_closed_within(double seconds) {
    pollfd waiting = {socket_, POLLIN, 0};
    char byte;
    return ::poll(&waiting, 1, static_cast<int>(seconds * 1000)) > 0 &&
           ::recv(socket_, &byte, 1, MSG_PEEK) <= 0;
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

 private:
  int socket_;
  bool connected_ = false;
  std::string received_;
};

// Returns "GET /path" and similar requests of a client that closes the connection afterwards.
inline std::string plain_request(std::string_view method, std::string_view path,
                                 std::string_view body = "") {
  std::string text = std::string(method) + ' ' + std::string(path) +
                     " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n";
  if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + std::string(body);
}

}  // namespace leq::test
