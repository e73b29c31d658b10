// A client's socket, with TLS or without; it never blocks where it is not told how long it may.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

namespace leq {

// Certificate and key for all connections.
class TlsContext {
 public:
  // PEM files. Throws Error naming the file that cannot be read, or where the key is another's.
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
  // Owns `descriptor`, a connected socket. `tls`: null for none; must outlive the connection.
  Connection(int descriptor, const TlsContext* tls);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int descriptor() const { return descriptor_; }

  enum class Outcome : std::uint8_t {
    some,        // bytes were moved
    wait_read,   // nothing can be done until there is something to read
    wait_write,  // ... until something can be written
    ended,       // by the other side, or by an error
  };
  struct Moved {
    Outcome outcome = Outcome::ended;
    std::size_t bytes = 0;
  };
  // At once, what can be done without waiting.
  Moved read(char* to, std::size_t size);
  Moved write(std::string_view text);

  // Waits as long as something moves at least every `patience` seconds; false where it does not, or
  // the other side is gone.
  bool write_all(std::string_view text, double patience);

  // False once the other side has closed its end.
  bool is_open() const;
  // No more bytes from this side; what the other side still sends can be read.
  void end_writing();

 private:
  struct Tls;
  Moved moved_by_tls(int result) const;

  int descriptor_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace leq
