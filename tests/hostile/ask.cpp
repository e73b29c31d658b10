#include "hostile/ask.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace leq::hostile {
namespace {

void limit_time(int socket, double seconds) {
  timeval limit = {};
  limit.tv_sec = static_cast<time_t>(seconds);
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool sent(int socket, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t some = ::send(socket, text.data() + done, text.size() - done, MSG_NOSIGNAL);
    if (some <= 0) return false;
    done += static_cast<std::size_t>(some);
  }
  return true;
}

std::string received(int socket) {
  std::string text;
  char part[4096];
  for (ssize_t some; (some = ::recv(socket, part, sizeof part, 0)) > 0;) {
    text.append(part, static_cast<std::size_t>(some));
  }
  return text;
}

}  // namespace

int port_in(const std::string& messages, const std::string& start) {
  const std::size_t line = messages.rfind(start);
  if (line == std::string::npos) return 0;
  const std::size_t end = messages.find('\n', line);
  if (end == std::string::npos) return 0;
  return std::atoi(messages.substr(messages.rfind(':', end) + 1, end).c_str());
}

std::string ask(int port, const Question& question, double seconds) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return "";
  limit_time(socket, seconds);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      sent(socket, "POST " + question.path +
                       " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                       "Content-Type: application/json\r\nContent-Length: " +
                       std::to_string(question.json.size()) + "\r\n\r\n" + question.json)) {
    answer = received(socket);
  }
  ::close(socket);
  const std::size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

std::string said_in(const std::string& answer) {
  const auto json = nlohmann::json::parse(answer, nullptr, false);
  if (!json.is_object()) return "";
  if (json.contains("error")) return "error";
  return json.contains("content") ? "text: " + json["content"].dump() : "done";
}

}  // namespace leq::hostile
