#include "server/connection.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace leq {
namespace {

std::string tls_error() {
  char text[256] = "unknown";
  if (const unsigned long code = ERR_get_error()) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

constexpr std::uint64_t kMostPemBytes = 1 << 20;
constexpr int kMostAtOnce = 1 << 20;  // maximum bytes per OpenSSL call, whose sizes are int

}  // namespace

struct TlsContext::State {
  SSL_CTX* context = nullptr;
  ~State() { SSL_CTX_free(context); }
};

TlsContext::TlsContext(const std::filesystem::path& certificate, const std::filesystem::path& key)
    : state_(std::make_unique<State>()) {
  state_->context = SSL_CTX_new(TLS_server_method());
  require(state_->context != nullptr, ErrorKind::internal, "TLS: ", tls_error());
  SSL_CTX_set_min_proto_version(state_->context, TLS1_2_VERSION);
  SSL_CTX_set_mode(state_->context,
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // Rejects pipes, on which OpenSSL would block, and endless files.
  for (const auto& path : {certificate, key}) (void)read_file(path, kMostPemBytes);
  require(SSL_CTX_use_certificate_chain_file(state_->context, certificate.c_str()) == 1,
          certificate.string(), ": expected a certificate in PEM format (", tls_error(), ")");
  require(SSL_CTX_use_PrivateKey_file(state_->context, key.c_str(), SSL_FILETYPE_PEM) == 1,
          key.string(), ": expected the certificate's private key in PEM format (", tls_error(),
          ")");
}

TlsContext::~TlsContext() = default;

struct Connection::Tls {
  SSL* ssl = nullptr;
  ~Tls() { SSL_free(ssl); }
};

Connection::Connection(int descriptor, const TlsContext* tls) : descriptor_(descriptor) {
  if (tls == nullptr) return;
  tls_ = std::make_unique<Tls>();
  tls_->ssl = SSL_new(tls->state_->context);
  ensure(tls_->ssl != nullptr && SSL_set_fd(tls_->ssl, descriptor) == 1, "TLS: ", tls_error());
  SSL_set_accept_state(tls_->ssl);
}

Connection::~Connection() { close(descriptor_); }

Connection::Moved Connection::moved_by_tls(int result) const {
  if (result > 0) return {Outcome::some, static_cast<std::size_t>(result)};
  const int error = SSL_get_error(tls_->ssl, result);
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ) return {Outcome::wait_read};
  if (error == SSL_ERROR_WANT_WRITE) return {Outcome::wait_write};
  return {Outcome::ended};
}

Connection::Moved Connection::read(char* to, std::size_t size) {
  if (tls_) {
    const int most = static_cast<int>(std::min<std::size_t>(size, kMostAtOnce));
    return moved_by_tls(SSL_read(tls_->ssl, to, most));
  }
  const ssize_t got = ::recv(descriptor_, to, size, MSG_DONTWAIT);
  if (got > 0) return {Outcome::some, static_cast<std::size_t>(got)};
  const bool later = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return {later ? Outcome::wait_read : Outcome::ended};
}

Connection::Moved Connection::write(std::string_view text) {
  if (tls_) {
    const int most = static_cast<int>(std::min<std::size_t>(text.size(), kMostAtOnce));
    return moved_by_tls(SSL_write(tls_->ssl, text.data(), most));
  }
  const ssize_t sent = ::send(descriptor_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return {Outcome::some, static_cast<std::size_t>(sent)};
  const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
  return {later ? Outcome::wait_write : Outcome::ended};
}

bool Connection::write_all(std::string_view text, double patience) {
  while (!text.empty()) {
    const Moved moved = write(text);
    if (moved.outcome == Outcome::ended) return false;
    if (moved.outcome == Outcome::some) {
      text.remove_prefix(moved.bytes);
      continue;
    }
    const bool reading = moved.outcome == Outcome::wait_read;
    pollfd waiting = {descriptor_, static_cast<short>(reading ? POLLIN : POLLOUT), 0};
    if (poll(&waiting, 1, static_cast<int>(patience * 1000)) <= 0) return false;
  }
  return true;
}

bool Connection::is_open() const {
  char byte;
  const ssize_t got = ::recv(descriptor_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR));
}

void Connection::end_writing() {
  if (tls_) {
    SSL_shutdown(tls_->ssl);
    ERR_clear_error();
  }
  shutdown(descriptor_, SHUT_WR);
}

}  // namespace leq
