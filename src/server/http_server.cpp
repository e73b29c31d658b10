#include "server/http_server.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "server/connection.h"
#include "server/http_exchange.h"

namespace leq {
namespace {

constexpr int kTickMilliseconds = 200;  // interval between checks of deadlines
constexpr double kLingerSeconds = 2;    // time limit for a client to read its last reply
constexpr double kLastSeconds = 0.3;    // replaces kLingerSeconds during a shutdown
constexpr int kMostReads = 16;          // reads per connection and wake-up
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

std::string address_text(const HttpOptions& options) {
  return options.host + " port " + std::to_string(options.port);
}

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
  fail(ErrorKind::io, address_text(options), ": cannot listen there: ", std::strerror(error),
       "; choose another ", Setting{"port"}, " or ", Setting{"host"});
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
  void attend(int descriptor);
  bool watch(int descriptor, std::uint32_t events, int how);
  void accept_all();
  void accept_one(int descriptor);
  void take_returned();
  void welcome(Exchange visit);
  void receive(Clients::iterator client);
  bool feed(Clients::iterator client, std::string_view bytes);
  void hand_over(Clients::iterator client, std::string_view rest);
  void refuse(Clients::iterator client, const HttpFault& fault);
  void refuse(Clients::iterator client, const HttpReply& reply);
  void linger(Client& client);
  void count_held(Client& client);
  void drop(Clients::iterator client);
  bool drop_oldest();
  void end_overdue();
  void add_worker();
  void try_add_worker();
  void work();
  void answer(Exchange& visit);
  void wake() const;

  HttpOptions options_;
  HttpHandler handler_;
  HttpFaultReply fault_reply_;
  HttpHeadCheck head_check_;
  std::optional<TlsContext> tls_;
  Descriptor listening_, epoll_, wakener_;
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
      wakener_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!options.certificate.empty()) tls_.emplace(options.certificate, options.key);
  require(epoll_.number >= 0 && wakener_.number >= 0, ErrorKind::io,
          "cannot wait for connections: ", std::strerror(errno));
  require(watch(listening_.number, EPOLLIN, EPOLL_CTL_ADD) &&
              watch(wakener_.number, EPOLLIN, EPOLL_CTL_ADD),
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

void HttpServer::EventLoop::wake() const {
  const std::uint64_t one = 1;
  // A write that fails because the counter is full may be ignored: the event loop wakes up anyway.
  (void)!write(wakener_.number, &one, sizeof one);
}

// Returns false if the system's limit on epoll watches is reached.
bool HttpServer::EventLoop::watch(int descriptor, std::uint32_t events, int how) {
  epoll_event event = {};
  event.events = events;
  event.data.fd = descriptor;
  return epoll_ctl(epoll_.number, how, descriptor, &event) == 0;
}

// If memory for a client runs out, only its connection is closed.
void HttpServer::EventLoop::attend(int descriptor) {
  try {
    if (descriptor == listening_.number) {
      accept_all();
    } else if (descriptor == wakener_.number) {
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
      attend(events[static_cast<std::size_t>(i)].data.fd);
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
  for (int i = 0; i < kMostReads; ++i) {
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
  (void)!read(wakener_.number, &count, sizeof count);
  {
    const std::lock_guard lock(mutex_);
    back.swap(returned_);
  }
  for (Exchange& visit : back) {
    const int descriptor = visit.connection->descriptor();
    try {
      welcome(std::move(visit));
    } catch (const std::exception&) {  // handled as in attend()
      const auto client = clients_.find(descriptor);
      client == clients_.end() ? void(--connections_) : drop(client);
    }
  }
}

// Takes a connection back from a worker. Parses its buffered bytes first; TLS may have more.
void HttpServer::EventLoop::welcome(Exchange visit) {
  const int descriptor = visit.connection->descriptor();
  Client back = {std::move(visit.connection), HttpReader(options_.limits)};
  back.is_new = false;
  const auto client = clients_.emplace(descriptor, std::move(back)).first;
  if (!watch(descriptor, EPOLLIN, EPOLL_CTL_ADD)) return drop(client);
  if (visit.is_leaving) return linger(client->second);
  if (feed(client, visit.rest)) receive(client);
}

void HttpServer::EventLoop::receive(Clients::iterator client) {
  std::array<char, kReadBytes> buffer;
  for (int i = 0; i < kMostReads; ++i) {
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
    hand_over(client, bytes.substr(used));
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
  if (from.reader.take_wish_to_continue()) {
    from.connection->write("HTTP/1.1 100 Continue\r\n\r\n");
  }
  return true;
}

void HttpServer::EventLoop::count_held(Client& client) {
  const std::uint64_t held = client.reader.held_bytes();
  held_ = held_ - client.held + held;
  client.held = held;
}

void HttpServer::EventLoop::hand_over(Clients::iterator client, std::string_view rest) {
  Exchange visit = {nullptr, client->second.reader.take(), std::string(rest)};
  {
    const std::lock_guard lock(mutex_);
    ready_.push_back(std::move(visit));
    // From here on no statement can throw.
    epoll_ctl(epoll_.number, EPOLL_CTL_DEL, client->first, nullptr);
    ready_.back().connection = std::move(client->second.connection);
    const bool may_grow = !stopping_ && std::ssize(workers_) < options_.workers;
    if (may_grow && ready_.size() > idle_workers_) try_add_worker();
  }
  held_ -= client->second.held;
  clients_.erase(client);
  is_ready_.notify_one();
}

void HttpServer::EventLoop::refuse(Clients::iterator client, const HttpFault& fault) try {
  refuse(client, fault_reply_(fault));
} catch (const std::exception&) {  // handled as in attend()
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

bool HttpServer::EventLoop::drop_oldest() {
  const auto oldest = std::ranges::max_element(
      clients_, {}, [](const auto& client) { return client.second.since.seconds(); });
  if (oldest == clients_.end()) return false;
  drop(oldest);
  return true;
}

void HttpServer::EventLoop::end_overdue() {
  for (auto next = clients_.begin(); next != clients_.end();) {
    const auto client = next++;
    const Client& who = client->second;
    const double seconds = who.since.seconds();
    if (who.is_leaving) {
      if (seconds > (ending_ ? kLastSeconds : kLingerSeconds)) drop(client);
    } else if (stopping_) {
      drop(client);
    } else if (who.reader.started() && seconds > options_.request_seconds) {
      refuse(client, HttpFault{408, "the request did not arrive in time"});
    } else if (seconds > (who.is_new ? options_.request_seconds : options_.idle_seconds)) {
      drop(client);
    }
  }
}

void HttpServer::EventLoop::add_worker() {
  workers_.emplace_back([this] { work(); });
}

// If no thread can be started, the existing workers answer all requests.
void HttpServer::EventLoop::try_add_worker() try { add_worker(); } catch (const std::exception&) {
}

void HttpServer::EventLoop::work() {
  while (true) {
    Exchange visit;
    {
      std::unique_lock lock(mutex_);
      ++idle_workers_;
      is_ready_.wait(lock, [&] { return stopping_ || !ready_.empty(); });
      --idle_workers_;
      if (ready_.empty()) return;
      visit = std::move(ready_.front());
      ready_.pop_front();
    }
    ++answering_;
    try {
      answer(visit);
    } catch (const std::exception&) {  // out of memory even for an error reply
      visit.connection.reset();
      --connections_;
    }
    --answering_;
  }
}

// Answers the request, then returns the connection to the event loop or closes it.
void HttpServer::EventLoop::answer(Exchange& visit) {
  SocketExchange exchange(*visit.connection, std::move(visit.request), options_);
  if (stopping_) exchange.close_after();
  try {
    handler_(exchange);
    if (!exchange.begun()) exchange.reply(fault_reply_({500, "no answer"}));
  } catch (const std::exception& error) {
    exchange.close_after();
    if (!exchange.begun()) exchange.reply(fault_reply_({500, error.what()}));
  }
  if (!exchange.is_sound()) {
    --connections_;
    return;
  }
  visit.is_leaving = !exchange.may_go_on();
  {
    const std::lock_guard lock(mutex_);
    returned_.push_back({std::move(visit.connection), {}, std::move(visit.rest), visit.is_leaving});
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
