#include "server/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/stopwatch.h"

namespace leq {
namespace {

std::string tls_error() {
  char text[256] = "unknown";
  if (const unsigned long code = ERR_get_error()) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

// The certificate and private key for all connections.
class TlsContext {
 public:
  // PEM files. Throws Error naming a file that cannot be read or a key that does not match.
  TlsContext(const std::filesystem::path& certificate, const std::filesystem::path& key)
      : context_(SSL_CTX_new(TLS_server_method()), SSL_CTX_free) {
    require(context_ != nullptr, ErrorKind::internal, "TLS: ", tls_error());
    SSL_CTX_set_min_proto_version(get(), TLS1_2_VERSION);
    SSL_CTX_set_mode(get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // Rejects pipes, on which OpenSSL would block, and endless files.
    constexpr std::uint64_t kMaxPemBytes = 1 << 20;
    for (const auto& path : {certificate, key}) (void)read_file(path, kMaxPemBytes);
    require(SSL_CTX_use_certificate_chain_file(get(), certificate.c_str()) == 1,
            certificate.string(), ": expected a certificate in PEM format (", tls_error(), ")");
    require(SSL_CTX_use_PrivateKey_file(get(), key.c_str(), SSL_FILETYPE_PEM) == 1, key.string(),
            ": expected the certificate's private key in PEM format (", tls_error(), ")");
  }
  SSL_CTX* get() const { return context_.get(); }

 private:
  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
};

// A client's socket, with or without TLS; non-blocking except for calls with a time limit.
class Connection {
 public:
  // Takes ownership of `descriptor`, a connected socket. `tls` may be null, or must outlive this.
  Connection(int descriptor, const TlsContext* tls) : descriptor_(descriptor) {
    if (tls == nullptr) return;
    tls_.reset(SSL_new(tls->get()));
    ensure(tls_ != nullptr && SSL_set_fd(tls_.get(), descriptor) == 1, "TLS: ", tls_error());
    SSL_set_accept_state(tls_.get());
  }
  ~Connection() { close(descriptor_); }
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

  // Blocks as long as the peer accepts some bytes at least every `timeout` seconds; false on a
  // timeout or a closed connection.
  bool write_all(std::string_view text, double timeout);

  // False once the peer has closed its end, also if it sent bytes before that are not read yet.
  bool is_open() const {
    pollfd state = {descriptor_, POLLRDHUP, 0};  // beside errors, which are always reported
    return poll(&state, 1, 0) <= 0;
  }
  // Shuts down the sending side; data from the peer can still be read.
  void end_writing() {
    if (tls_) {
      SSL_shutdown(tls_.get());
      ERR_clear_error();
    }
    shutdown(descriptor_, SHUT_WR);
  }

 private:
  static constexpr int kMaxAtOnce = 1 << 20;  // bytes per OpenSSL call, whose sizes are int
  static bool may_retry() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }
  Moved moved_by_tls(int result) const;

  int descriptor_;
  std::unique_ptr<SSL, void (*)(SSL*)> tls_ = {nullptr, SSL_free};
};

Connection::Moved Connection::moved_by_tls(int result) const {
  if (result > 0) return {Outcome::some, static_cast<std::size_t>(result)};
  const int error = SSL_get_error(tls_.get(), result);
  ERR_clear_error();
  if (error == SSL_ERROR_WANT_READ) return {Outcome::wait_read};
  if (error == SSL_ERROR_WANT_WRITE) return {Outcome::wait_write};
  return {Outcome::ended};
}

Connection::Moved Connection::read(char* to, std::size_t size) {
  if (tls_) {
    const int most = static_cast<int>(std::min<std::size_t>(size, kMaxAtOnce));
    return moved_by_tls(SSL_read(tls_.get(), to, most));
  }
  const ssize_t got = ::recv(descriptor_, to, size, MSG_DONTWAIT);
  if (got > 0) return {Outcome::some, static_cast<std::size_t>(got)};
  return {got < 0 && may_retry() ? Outcome::wait_read : Outcome::ended};
}

Connection::Moved Connection::write(std::string_view text) {
  if (tls_) {
    const int most = static_cast<int>(std::min<std::size_t>(text.size(), kMaxAtOnce));
    return moved_by_tls(SSL_write(tls_.get(), text.data(), most));
  }
  const ssize_t sent = ::send(descriptor_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent >= 0) return {Outcome::some, static_cast<std::size_t>(sent)};
  return {may_retry() ? Outcome::wait_write : Outcome::ended};
}

bool Connection::write_all(std::string_view text, double timeout) {
  while (!text.empty()) {
    const Moved moved = write(text);
    if (moved.outcome == Outcome::ended) return false;
    if (moved.outcome == Outcome::some) {
      text.remove_prefix(moved.bytes);
      continue;
    }
    const bool reading = moved.outcome == Outcome::wait_read;
    pollfd waiting = {descriptor_, static_cast<short>(reading ? POLLIN : POLLOUT), 0};
    if (poll(&waiting, 1, static_cast<int>(timeout * 1000)) <= 0) return false;
  }
  return true;
}

// The reply's headers, plus Content-Type and Date.
HttpHeaders sent_headers(const HttpReply& reply) {
  HttpHeaders headers = reply.headers;
  if (!reply.type.empty()) headers.emplace_back("Content-Type", reply.type);
  headers.emplace_back("Date", http_date(std::time(nullptr)));
  return headers;
}

// One request on a connection, and its reply.
class SocketExchange : public HttpExchange {
 public:
  // `connection` must outlive the exchange.
  SocketExchange(Connection& connection, HttpRequest request, const HttpOptions& options)
      : connection_(connection),
        request_(std::move(request)),
        timeout_(options.write_seconds),
        keep_alive_(request_.keep_alive) {}

  const HttpRequest& request() const override { return request_; }
  void reply(const HttpReply& reply) override;
  bool begin_stream(const HttpReply& head) override;
  bool write(std::string_view piece) override {
    if (piece.empty()) return is_healthy_;  // an empty chunk would mean the end
    return send(request_.takes_chunks ? http_chunk(piece) : std::string(piece));
  }
  bool end_stream() override {
    if (request_.takes_chunks) send(http_chunk(""));
    ended_ = true;
    return is_healthy_;
  }
  bool client_is_there() override { return is_healthy_ && connection_.is_open(); }

  // Requests that the connection be closed after this reply.
  void close_after() { keep_alive_ = false; }

  bool begun() const { return begun_; }
  // Whether the whole reply was sent and the connection stays open for another request.
  bool can_reuse() const { return ended_ && is_healthy_ && keep_alive_; }
  bool is_healthy() const { return is_healthy_; }

 private:
  bool send(std::string_view text) {
    if (is_healthy_) is_healthy_ = connection_.write_all(text, timeout_);
    return is_healthy_;
  }

  Connection& connection_;
  HttpRequest request_;
  double timeout_;
  bool keep_alive_;
  bool begun_ = false, ended_ = false, is_healthy_ = true;
};

void SocketExchange::reply(const HttpReply& reply) {
  ensure(!begun_, "http: a second reply to one request");
  begun_ = ended_ = true;
  const bool may_have_body = reply.status != 204;
  const bool has_body = may_have_body && request_.method != "HEAD";
  const HttpBody body = {may_have_body ? HttpBody::Framing::length : HttpBody::Framing::none,
                         reply.body.size()};
  const std::string head = response_head(reply.status, sent_headers(reply), body, keep_alive_);
  constexpr std::size_t kTogetherBytes = 64 << 10;  // larger bodies are sent without a copy
  if (has_body && reply.body.size() <= kTogetherBytes) {
    send(head + reply.body);
    return;
  }
  send(head);
  if (has_body) send(reply.body);
}

bool SocketExchange::begin_stream(const HttpReply& head) {
  ensure(!begun_, "http: a second reply to one request");
  begun_ = true;
  if (!request_.takes_chunks) keep_alive_ = false;
  const HttpBody body = {request_.takes_chunks ? HttpBody::Framing::chunks
                                               : HttpBody::Framing::none};
  return send(response_head(head.status, sent_headers(head), body, keep_alive_));
}

constexpr int kTickMilliseconds = 200;  // interval between checks of deadlines
constexpr double kLingerSeconds = 2;    // time limit for a client to read its last reply
constexpr double kLastSeconds = 0.3;    // replaces kLingerSeconds during a shutdown
constexpr int kMaxReads = 16;           // reads per connection and wake-up
constexpr std::size_t kReadBytes = 32 << 10;
constexpr std::size_t kAlwaysHeld = 64 << 10;  // bytes that every request may buffer

struct Descriptor {
  int number = -1;
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void reset() {
    if (number >= 0) close(number);
    number = -1;
  }
};

int listening_socket(const HttpOptions& options) {
  addrinfo wanted = {};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int looked_up =
      getaddrinfo(options.host.c_str(), std::to_string(options.port).c_str(), &wanted, &list);
  require(looked_up == 0, Setting{"host"}, ' ', options.host, ": no such address (",
          gai_strerror(looked_up), ")");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  int error = 0;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    const int type = one->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC;
    const int opened = socket(one->ai_family, type, one->ai_protocol);
    const int on = 1;
    if (opened >= 0) setsockopt(opened, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (opened >= 0 && bind(opened, one->ai_addr, one->ai_addrlen) == 0 &&
        listen(opened, SOMAXCONN) == 0) {
      return opened;
    }
    error = errno;
    if (opened >= 0) close(opened);
  }
  fail(ErrorKind::io, options.host, " port ", options.port,
       ": cannot listen there: ", std::strerror(error), "; choose another ", Setting{"port"},
       " or ", Setting{"host"});
}

}  // namespace

class HttpServer::EventLoop {
 public:
  EventLoop(const HttpOptions& options, HttpHandler handler, HttpFaultReply fault_reply,
            HttpHeadCheck head_check);
  ~EventLoop() { stop(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  int port() const;
  void stop();
  Counts counts() const { return {connections_.load(), waiting_.load(), answering_.load()}; }

 private:
  // A connection that waits in the event loop.
  struct Client {
    std::unique_ptr<Connection> connection;
    HttpReader reader;
    Stopwatch since = {};     // time since accept, last reply or first byte
    bool is_new = true;       // no complete request yet
    bool is_leaving = false;  // the last reply was sent; input is discarded
    bool is_checked = false;  // the request's head was checked
    std::uint64_t held = 0;   // bytes buffered for its request

    bool is_between_requests() const { return !is_new && !is_leaving && !reader.started(); }
  };
  // A request handed between the event loop and the workers.
  struct Exchange {
    std::unique_ptr<Connection> connection;
    HttpRequest request;
    std::string rest;  // bytes received after the request
    bool is_leaving = false;
  };
  using Clients = std::map<int, Client>;

  void run();
  void handle_event(int descriptor);
  bool watch(int descriptor, std::uint32_t events, int how);
  void accept_all();
  void accept_one(int descriptor);
  void take_returned();
  void accept_returned(Exchange pending);
  void receive(Clients::iterator client);
  bool feed(Clients::iterator client, std::string_view bytes);
  void enqueue(Clients::iterator client, std::string_view rest);
  void refuse(Clients::iterator client, const HttpFault& fault);
  void refuse(Clients::iterator client, const HttpReply& reply);
  void linger(Client& client);
  void count_held(Client& client);
  void drop(Clients::iterator client);
  bool drop_oldest();
  void end_overdue();
  void add_worker() {
    workers_.emplace_back([this] { work(); });
  }
  void work();
  void answer(Exchange& pending);
  void wake() const {
    const std::uint64_t one = 1;
    // A write that fails because the counter is full may be ignored: the loop wakes up anyway.
    (void)!write(wake_event_.number, &one, sizeof one);
  }

  HttpOptions options_;
  HttpHandler handler_;
  HttpFaultReply fault_reply_;
  HttpHeadCheck head_check_;
  std::optional<TlsContext> tls_;
  Descriptor listening_, epoll_, wake_event_;
  Clients clients_;  // used only by the event loop's thread, like held_
  std::uint64_t held_ = 0;
  std::atomic<std::int64_t> connections_{0}, waiting_{0}, answering_{0};
  std::atomic<bool> stopping_{false}, ending_{false};
  std::mutex mutex_;
  std::condition_variable is_ready_;
  std::deque<Exchange> ready_, returned_;
  std::thread thread_;
  // Guarded by the mutex, like idle_workers_. The number of threads grows to the largest number of
  // requests answered concurrently.
  std::vector<std::thread> workers_;
  std::size_t idle_workers_ = 0;
};

HttpServer::EventLoop::EventLoop(const HttpOptions& options, HttpHandler handler,
                                 HttpFaultReply fault_reply, HttpHeadCheck head_check)
    : options_(options),
      handler_(std::move(handler)),
      fault_reply_(std::move(fault_reply)),
      head_check_(std::move(head_check)),
      listening_(listening_socket(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!options.certificate.empty()) tls_.emplace(options.certificate, options.key);
  require(epoll_.number >= 0 && wake_event_.number >= 0, ErrorKind::io,
          "cannot wait for connections: ", std::strerror(errno));
  require(watch(listening_.number, EPOLLIN, EPOLL_CTL_ADD) &&
              watch(wake_event_.number, EPOLLIN, EPOLL_CTL_ADD),
          ErrorKind::io, "cannot wait for connections: ", std::strerror(errno));
  try {
    thread_ = std::thread([this] { run(); });
    const std::lock_guard lock(mutex_);
    add_worker();
  } catch (const std::system_error& error) {
    stop();
    fail(ErrorKind::no_memory, "cannot start a thread of the server: ", error.what());
  } catch (...) {
    stop();
    throw;
  }
}

int HttpServer::EventLoop::port() const {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getsockname(listening_.number, reinterpret_cast<sockaddr*>(&address), &size);
  return address.ss_family == AF_INET6
             ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port)
             : ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

void HttpServer::EventLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  is_ready_.notify_all();
  for (std::thread& worker : workers_) worker.join();  // no worker is added while stopping
  workers_.clear();
  ending_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
}

// Returns false if the system's limit on epoll watches is reached.
bool HttpServer::EventLoop::watch(int descriptor, std::uint32_t events, int how) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = descriptor;
  return epoll_ctl(epoll_.number, how, descriptor, &event) == 0;
}

// If memory for a client runs out, only its connection is closed.
void HttpServer::EventLoop::handle_event(int descriptor) {
  try {
    if (descriptor == listening_.number) {
      accept_all();
    } else if (descriptor == wake_event_.number) {
      take_returned();
    } else if (const auto client = clients_.find(descriptor); client != clients_.end()) {
      receive(client);
    }
  } catch (const std::exception&) {
    if (const auto client = clients_.find(descriptor); client != clients_.end()) drop(client);
  }
}

void HttpServer::EventLoop::run() {
  std::array<epoll_event, 64> events;
  Stopwatch tick;
  while (true) {
    const int count = epoll_wait(epoll_.number, events.data(), static_cast<int>(events.size()),
                                 kTickMilliseconds);
    if (stopping_ && listening_.number >= 0) listening_.reset();
    for (int i = 0; i < count; ++i) {
      handle_event(events[static_cast<std::size_t>(i)].data.fd);
    }
    const bool last = ending_;
    if (last || tick.seconds() * 1000 >= kTickMilliseconds) {
      end_overdue();
      tick.restart();
    }
    waiting_ = std::ssize(clients_);
    if (last && clients_.empty()) return;
  }
}

void HttpServer::EventLoop::accept_all() {
  for (int i = 0; i < kMaxReads; ++i) {
    const int accepted = accept4(listening_.number, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted >= 0) {
      accept_one(accepted);
      continue;
    }
    // If there are no free descriptors, the connection that has been idle longest is closed.
    const bool full = errno == EMFILE || errno == ENFILE;
    if (full && !drop_oldest()) usleep(kTickMilliseconds * 100);
    if (!full) return;
  }
}

void HttpServer::EventLoop::accept_one(int descriptor) {
  const int on = 1;
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connections_ >= options_.connections) drop_oldest();
  Descriptor owned(descriptor);
  auto connection = std::make_unique<Connection>(descriptor, tls_ ? &*tls_ : nullptr);
  owned.number = -1;
  const auto client =
      clients_.emplace(descriptor, Client{std::move(connection), HttpReader(options_.limits)})
          .first;
  const bool full = ++connections_ > options_.connections;
  if (!watch(descriptor, EPOLLIN, EPOLL_CTL_ADD)) return drop(client);
  if (full) refuse(client, HttpFault{503, "too many connections"});
}

void HttpServer::EventLoop::take_returned() {
  std::deque<Exchange> back;  // allocated first, so that a failure keeps the wake-up pending
  std::uint64_t count = 0;
  (void)!read(wake_event_.number, &count, sizeof count);
  {
    const std::lock_guard lock(mutex_);
    back.swap(returned_);
  }
  for (Exchange& pending : back) {
    const int descriptor = pending.connection->descriptor();
    try {
      accept_returned(std::move(pending));
    } catch (const std::exception&) {  // handled as in handle_event()
      const auto client = clients_.find(descriptor);
      client == clients_.end() ? void(--connections_) : drop(client);
    }
  }
}

// Takes a connection back from a worker. Parses its buffered bytes first; TLS may have more.
void HttpServer::EventLoop::accept_returned(Exchange pending) {
  const int descriptor = pending.connection->descriptor();
  Client back = {std::move(pending.connection), HttpReader(options_.limits)};
  back.is_new = false;
  const auto client = clients_.emplace(descriptor, std::move(back)).first;
  if (!watch(descriptor, EPOLLIN, EPOLL_CTL_ADD)) return drop(client);
  if (pending.is_leaving) return linger(client->second);
  if (feed(client, pending.rest)) receive(client);
}

void HttpServer::EventLoop::receive(Clients::iterator client) {
  std::array<char, kReadBytes> buffer;
  for (int i = 0; i < kMaxReads; ++i) {
    const auto moved = client->second.connection->read(buffer.data(), buffer.size());
    if (moved.outcome == Connection::Outcome::ended) return drop(client);
    if (moved.outcome != Connection::Outcome::some) {
      const bool writes = moved.outcome == Connection::Outcome::wait_write;
      if (!watch(client->first, writes ? EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD)) drop(client);
      return;
    }
    if (client->second.is_leaving) continue;
    if (!feed(client, {buffer.data(), moved.bytes})) return;
  }
}

// Returns false if the client has left the state of sending a request.
bool HttpServer::EventLoop::feed(Clients::iterator client, std::string_view bytes) {
  Client& from = client->second;
  if (!bytes.empty() && !from.reader.started() && !from.is_new) from.since.restart();
  const std::size_t used = from.reader.push(bytes);
  count_held(from);
  if (from.reader.fault()) {
    refuse(client, *from.reader.fault());
    return false;
  }
  if (from.reader.complete()) {
    enqueue(client, bytes.substr(used));
    return false;
  }
  if (head_check_ && from.reader.head_complete() && !std::exchange(from.is_checked, true)) {
    if (const auto reply = head_check_(from.reader.request())) {
      refuse(client, *reply);
      return false;
    }
  }
  if (held_ > options_.held_bytes && from.held > kAlwaysHeld) {
    refuse(client, HttpFault{503, "too many large requests at once"});
    return false;
  }
  if (from.reader.take_expect_continue()) {
    from.connection->write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  return true;
}

void HttpServer::EventLoop::count_held(Client& client) {
  const std::uint64_t held = client.reader.held_bytes();
  held_ = held_ - client.held + held;
  client.held = held;
}

void HttpServer::EventLoop::enqueue(Clients::iterator client, std::string_view rest) {
  Exchange pending = {nullptr, client->second.reader.take(), std::string(rest)};
  {
    const std::lock_guard lock(mutex_);
    ready_.push_back(std::move(pending));
    // From here on no statement can throw.
    epoll_ctl(epoll_.number, EPOLL_CTL_DEL, client->first, nullptr);
    ready_.back().connection = std::move(client->second.connection);
    const bool may_grow = !stopping_ && std::ssize(workers_) < options_.workers;
    try {
      if (may_grow && ready_.size() > idle_workers_) add_worker();
    } catch (const std::exception&) {  // the existing workers answer all requests
    }
  }
  held_ -= client->second.held;
  clients_.erase(client);
  is_ready_.notify_one();
}

void HttpServer::EventLoop::refuse(Clients::iterator client, const HttpFault& fault) try {
  refuse(client, fault_reply_(client->second.reader.request(), fault));
} catch (const std::exception&) {  // handled as in handle_event()
  drop(client);
}

void HttpServer::EventLoop::refuse(Clients::iterator client, const HttpReply& reply) {
  Client& refused = client->second;
  const HttpBody body = {HttpBody::Framing::length, reply.body.size()};
  // A single non-blocking write; if the client's buffer is full, the reply is dropped.
  refused.connection->write(response_head(reply.status, sent_headers(reply), body, false) +
                            reply.body);
  linger(refused);
}

// Closing immediately with unread input would reset the connection, which could discard the reply.
void HttpServer::EventLoop::linger(Client& client) {
  client.connection->end_writing();
  client.is_leaving = true;
  held_ -= std::exchange(client.held, 0);
  client.reader = HttpReader(options_.limits);
  client.since.restart();
}

void HttpServer::EventLoop::drop(Clients::iterator client) {
  held_ -= client->second.held;
  clients_.erase(client);  // closing its descriptor removes it from epoll
  --connections_;
}

// Closes the connection that has been idle longest or, if none is idle, the one that has been
// sending longest. New connections without a byte are not idle, because a request may be on its
// way.
bool HttpServer::EventLoop::drop_oldest() {
  const auto oldest = std::ranges::max_element(clients_, {}, [](const auto& client) {
    return std::pair(client.second.is_between_requests(), client.second.since.seconds());
  });
  if (oldest == clients_.end()) return false;
  drop(oldest);
  return true;
}

void HttpServer::EventLoop::end_overdue() {
  for (auto next = clients_.begin(); next != clients_.end();) {
    const auto client = next++;
    const Client& client_state = client->second;
    const double seconds = client_state.since.seconds();
    if (client_state.is_leaving) {
      if (seconds > (ending_ ? kLastSeconds : kLingerSeconds)) drop(client);
    } else if (stopping_) {
      drop(client);
    } else if (client_state.reader.started() && seconds > options_.request_seconds) {
      refuse(client, HttpFault{408, "the request did not arrive in time"});
    } else if (seconds > (client_state.is_new ? options_.request_seconds : options_.idle_seconds)) {
      drop(client);
    }
  }
}

void HttpServer::EventLoop::work() {
  while (true) {
    Exchange pending;
    {
      std::unique_lock lock(mutex_);
      ++idle_workers_;
      is_ready_.wait(lock, [&] { return stopping_ || !ready_.empty(); });
      --idle_workers_;
      if (ready_.empty()) return;
      pending = std::move(ready_.front());
      ready_.pop_front();
    }
    ++answering_;
    try {
      answer(pending);
    } catch (const std::exception&) {  // out of memory even for an error reply
      pending.connection.reset();
      --connections_;
    }
    --answering_;
  }
}

// Answers the request, then returns the connection to the event loop or closes it.
void HttpServer::EventLoop::answer(Exchange& pending) {
  SocketExchange exchange(*pending.connection, std::move(pending.request), options_);
  if (stopping_) exchange.close_after();
  try {
    handler_(exchange);
    if (!exchange.begun()) exchange.reply(fault_reply_(exchange.request(), {500, "no answer"}));
  } catch (const std::exception& error) {
    exchange.close_after();
    if (!exchange.begun()) exchange.reply(fault_reply_(exchange.request(), {500, error.what()}));
  }
  if (!exchange.is_healthy()) {
    --connections_;
    return;
  }
  pending.is_leaving = !exchange.can_reuse();
  {
    const std::lock_guard lock(mutex_);
    returned_.push_back(
        {std::move(pending.connection), {}, std::move(pending.rest), pending.is_leaving});
  }
  wake();
}

HttpServer::HttpServer(const HttpOptions& options, HttpHandler handler, HttpFaultReply fault_reply,
                       HttpHeadCheck head_check)
    : loop_(std::make_unique<EventLoop>(options, std::move(handler), std::move(fault_reply),
                                        std::move(head_check))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return loop_->port(); }
void HttpServer::stop() { loop_->stop(); }
HttpServer::Counts HttpServer::counts() const { return loop_->counts(); }

}  // namespace leq
