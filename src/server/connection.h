// A client's socket, with or without TLS; non-blocking except for calls with a time limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace leq {

// The certificate and private key for all connections.
class TlsContext {
 public:
  // PEM files. Throws Error naming a file that cannot be read or a key that does not match.
  TlsContext(const std::filesystem::path& certificate, const std::filesystem::path& key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

 private:
  friend class Connection;
  struct State;
  std::unique_ptr<State> state_;
};

class Connection {
 public:
  // Takes ownership of `descriptor`, a connected socket. `tls` may be null, or must outlive this.
  Connection(int descriptor, const TlsContext* tls);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int descriptor() const { return descriptor_; }

  enum class Outcome : std::uint8_t {
    some,        // bytes were moved
    wait_read,   // blocked until data can be read
    wait_write,  // blocked until data can be written
    ended,       // closed by the peer, or an error
  };
  struct Moved {
    Outcome outcome = Outcome::ended;
    std::size_t bytes = 0;
  };
  // Reads or writes as much as is possible without blocking.
  Moved read(char* to, std::size_t size);
  Moved write(std::string_view text);

  // Blocks as long as the peer accepts some bytes at least every `patience` seconds; false on a
  // timeout or a closed connection.
  bool write_all(std::string_view text, double patience);

  // False once the peer has closed its end.
  bool is_open() const;
  // Shuts down the sending side; data from the peer can still be read.
  void end_writing();

 private:
  struct Tls;
  Moved moved_by_tls(int result) const;

  int descriptor_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace leq
