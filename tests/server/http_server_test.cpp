// Tests the server's connections with a client that shares no code with the server (cpp-httplib)
// and with hostile clients.
#include "server/http_server.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "errors.h"
#include "server/raw_client.h"
#include "temporary_folder.h"

namespace leq::test {
namespace {

// Echoes the request; /stream answers in pieces, /slow after a delay, /throw with an exception.
void answer(HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  HttpReply reply;
  reply.type = "text/plain";
  if (request.path == "/throw") throw std::runtime_error("a plan that went wrong");
  if (request.path == "/slow") std::this_thread::sleep_for(std::chrono::milliseconds(500));
  if (request.path == "/stream") {
    if (!exchange.begin_stream(reply)) return;
    for (int i = 0; i < 100; ++i) exchange.write("piece " + std::to_string(i) + "\n");
    exchange.end_stream();
    return;
  }
  reply.body = request.method + ' ' + request.path + ' ' + request.body;
  exchange.reply(reply);
}

HttpReply fault_reply(const HttpRequest&, const HttpFault& fault) {
  return {.status = fault.status, .body = fault.text};
}

HttpOptions any_port() {
  HttpOptions options;
  options.port = 0;
  options.workers = 2;
  return options;
}

std::string stream_text() {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "piece " + std::to_string(i) + "\n";
  return text;
}

TEST(HttpServer, AnswersAClientThatKeepsItsConnection) {
  HttpServer server(any_port(), answer, fault_reply);
  httplib::Client client("127.0.0.1", server.port());
  client.set_keep_alive(true);
  for (int i = 0; i < 20; ++i) {
    const std::string body(static_cast<std::size_t>(i * i * 1000), 'x');
    const auto posted = client.Post("/echo", body, "text/plain");
    ASSERT_TRUE(posted) << to_string(posted.error());
    EXPECT_EQ(posted->status, 200);
    EXPECT_EQ(posted->body, "POST /echo " + body);
    const auto streamed = client.Get("/stream");
    ASSERT_TRUE(streamed) << to_string(streamed.error());
    EXPECT_EQ(streamed->body, stream_text());
  }
  EXPECT_EQ(server.counts().connections, 1);
  const auto head = client.Head("/echo");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->body, "");
  EXPECT_EQ(head->get_header_value("Content-Length"), "11");
}

TEST(HttpServer, TellsOfWhatItsHandlerThrows) {
  HttpServer server(any_port(), answer, fault_reply);
  httplib::Client client("127.0.0.1", server.port());
  const auto failed = client.Get("/throw");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->status, 500);
  EXPECT_EQ(failed->body, "a plan that went wrong");
  EXPECT_TRUE(client.Get("/echo"));
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  HttpServer server(any_port(), answer, fault_reply);
  RawClient client(server.port());
  const std::string one = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\n1";
  client.send(one + one + plain_request("GET", "/last"));
  const std::string all = client.read_all();
  EXPECT_LT(all.find("POST /a 1"), all.rfind("POST /a 1"));
  EXPECT_LT(all.rfind("POST /a 1"), all.find("GET /last"));
}

TEST(HttpServer, StreamsToAClientOfHttp10UntilItCloses) {
  HttpServer server(any_port(), answer, fault_reply);
  RawClient client(server.port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string all = client.read_all();
  EXPECT_TRUE(all.ends_with("\r\n\r\n" + stream_text())) << all;
}

TEST(HttpServer, SaysContinueToThoseWhoWaitForIt) {
  HttpServer server(any_port(), answer, fault_reply);
  RawClient client(server.port());
  client.send("POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ok");
  EXPECT_NE(client.read_until("POST /a ok").find("200 OK"), std::string::npos);
}

TEST(HttpServer, RefusesABodyThatIsTooLargeAndSaysSo) {
  HttpOptions options = any_port();
  options.limits.body_bytes = 1000;
  HttpServer server(options, answer, fault_reply);
  RawClient client(server.port());
  // The whole request is sent before the answer is read, as real clients do.
  client.send(plain_request("POST", "/a", std::string(200'000, 'x')));
  EXPECT_TRUE(client.read_all().starts_with("HTTP/1.1 413 "));
}

TEST(HttpServer, EndsRequestsThatDoNotArrive) {
  HttpOptions options = any_port();
  options.request_seconds = 0.5;
  options.idle_seconds = 0.5;
  HttpServer server(options, answer, fault_reply);
  RawClient silent(server.port()), slow(server.port()), idle(server.port());
  slow.send("GET / HTTP/1.1\r\nHo");
  idle.send("GET /idle HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_NE(idle.read_until("GET /idle").find("200 OK"), std::string::npos);
  EXPECT_TRUE(silent.is_closed_within(5));
  EXPECT_TRUE(slow.read_all().starts_with("HTTP/1.1 408 "));
  EXPECT_EQ(idle.read_all(5).find("408"), std::string::npos);
}

// Slow clients only occupy sockets, so two workers can answer the complete requests.
TEST(HttpServer, ServesWhileManySendSlowly) {
  HttpOptions options = any_port();
  options.connections = 400;
  HttpServer server(options, answer, fault_reply);
  std::vector<RawClient> slow;
  for (int i = 0; i < 300; ++i) {
    slow.emplace_back(server.port());
    ASSERT_TRUE(slow.back().connected());
    slow.back().send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\nabc");
  }
  for (int i = 0; i < 20; ++i) {
    for (const RawClient& client : slow) client.send("x");
    RawClient quick(server.port());
    quick.send(plain_request("GET", "/quick"));
    EXPECT_NE(quick.read_all(10).find("GET /quick"), std::string::npos) << i;
  }
  EXPECT_GE(server.counts().waiting, 300);
}

TEST(HttpServer, ClosesWhoHasWaitedLongestWhereTooManyConnect) {
  HttpOptions options = any_port();
  options.connections = 8;
  HttpServer server(options, answer, fault_reply);
  std::vector<RawClient> slow;
  for (int i = 0; i < 20; ++i) {
    slow.emplace_back(server.port());
    slow.back().send("GET / HT");
    RawClient quick(server.port());
    quick.send(plain_request("GET", "/quick"));
    EXPECT_NE(quick.read_all(10).find("GET /quick"), std::string::npos) << i;
  }
  EXPECT_TRUE(slow.front().is_closed_within(5));
  EXPECT_FALSE(slow.back().is_closed_within(0.1));
}

TEST(HttpServer, ClosesIdleConnectionsBeforeThoseThatSend) {
  HttpOptions options = any_port();
  options.connections = 3;
  HttpServer server(options, answer, fault_reply);
  RawClient sending(server.port()), first(server.port()), second(server.port());
  sending.send("POST /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\n1");
  for (RawClient* idle : {&first, &second}) {
    idle->send("GET /idle HTTP/1.1\r\nHost: h\r\n\r\n");
    idle->read_until("GET /idle");
  }
  while (server.counts().waiting < 3) std::this_thread::yield();
  RawClient next(server.port());
  next.send(plain_request("GET", "/next"));
  EXPECT_NE(next.read_all().find("GET /next"), std::string::npos);
  EXPECT_TRUE(first.is_closed_within(5));
  sending.send("2");
  EXPECT_NE(sending.read_all().find("POST /a 12"), std::string::npos);
}

TEST(HttpServer, HoldsNoMoreOfLargeRequestsThanItMay) {
  HttpOptions options = any_port();
  options.held_bytes = 1 << 20;
  HttpServer server(options, answer, fault_reply);
  std::vector<RawClient> large;
  const std::string head = "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 8000000\r\n\r\n";
  int refused = 0;
  for (int i = 0; i < 6; ++i) {
    large.emplace_back(server.port());
    large.back().send(head + std::string(400'000, 'x'));
  }
  for (RawClient& client : large) refused += client.read_until("503", 1).empty() ? 0 : 1;
  EXPECT_GE(refused, 3);
  RawClient small(server.port());
  small.send(plain_request("POST", "/small", std::string(1000, 'y')));
  EXPECT_NE(small.read_all().find("POST /small"), std::string::npos);
}

TEST(HttpServer, FinishesWhatItHasReadBeforeItStops) {
  HttpServer server(any_port(), answer, fault_reply);
  RawClient client(server.port()), idle(server.port());
  client.send(plain_request("GET", "/slow"));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const int port = server.port();
  server.stop();
  EXPECT_NE(client.read_all().find("GET /slow"), std::string::npos);
  EXPECT_TRUE(idle.is_closed_within(5));
  EXPECT_FALSE(RawClient(port).connected());
}

TEST(HttpServer, ReportsAnAddressInUse) {
  HttpServer server(any_port(), answer, fault_reply);
  HttpOptions taken = any_port();
  taken.port = server.port();
  test::expect_error([&] { HttpServer second(taken, answer, fault_reply); }, {"cannot listen"},
                     ErrorKind::io);
}

// Creates a self-signed certificate.
void write_certificate(const std::string& certificate, const std::string& key) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> pair(EVP_EC_gen("P-256"),
                                                                 EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> x509(X509_new(), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(x509.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(x509.get()), 3600);
  X509_set_pubkey(x509.get(), pair.get());
  X509_NAME* name = X509_get_subject_name(x509.get());
  const unsigned char host[] = "localhost";
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, host, -1, -1, 0);
  X509_set_issuer_name(x509.get(), name);
  X509_sign(x509.get(), pair.get(), EVP_sha256());
  std::FILE* file = std::fopen(certificate.c_str(), "w");
  PEM_write_X509(file, x509.get());
  std::fclose(file);
  file = std::fopen(key.c_str(), "w");
  PEM_write_PrivateKey(file, pair.get(), nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
}

TEST(HttpServer, SpeaksTlsWhereItHasACertificate) {
  std::signal(SIGPIPE, SIG_IGN);  // as the tool does
  const TemporaryFolder folder;
  HttpOptions options = any_port();
  options.certificate = folder.path() / "cert.pem";
  options.key = folder.path() / "key.pem";
  write_certificate(options.certificate, options.key);
  HttpServer server(options, answer, fault_reply);
  RawClient plain(server.port()), silent(server.port());
  plain.send(plain_request("GET", "/plain"));
  httplib::SSLClient client("127.0.0.1", server.port());
  client.enable_server_certificate_verification(false);
  client.set_keep_alive(true);
  for (int i = 0; i < 5; ++i) {
    const std::string body(static_cast<std::size_t>(i) * 300'000, 'x');
    const auto posted = client.Post("/echo", body, "text/plain");
    ASSERT_TRUE(posted) << to_string(posted.error());
    EXPECT_EQ(posted->body, "POST /echo " + body);
    const auto streamed = client.Get("/stream");
    ASSERT_TRUE(streamed);
    EXPECT_EQ(streamed->body, stream_text());
  }
  EXPECT_EQ(plain.read_all(5).find("200 OK"), std::string::npos);
}

// After a disconnect with no unread bytes, with unread bytes, and with a TLS close_notify.
TEST(HttpServer, NoticesThatAClientHasLeft) {
  std::signal(SIGPIPE, SIG_IGN);
  const TemporaryFolder folder;
  HttpOptions options = any_port(), secret = any_port();
  secret.certificate = folder.path() / "cert.pem";
  secret.key = folder.path() / "key.pem";
  write_certificate(secret.certificate, secret.key);
  std::atomic<int> waiting = 0, left = 0;
  const auto wait = [&](HttpExchange& exchange) {
    ++waiting;
    for (int i = 0; i < 1000 && exchange.client_is_there(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    left += exchange.client_is_there() ? 0 : 1;
  };
  {
    HttpServer server(options, wait, fault_reply), tls(secret, wait, fault_reply);
    int sent = 0;
    for (const char* unread : {"", "\r\n", "GET /next HTTP/1.1\r\nHost: h\r\n\r\n"}) {
      RawClient client(server.port());
      client.send(plain_request("GET", "/"));
      for (++sent; waiting < sent;) std::this_thread::yield();
      client.send(unread);
      client.close();
    }
    httplib::SSLClient client("127.0.0.1", tls.port());
    client.enable_server_certificate_verification(false);
    client.set_read_timeout(std::chrono::milliseconds(200));
    EXPECT_FALSE(client.Get("/"));
  }
  EXPECT_EQ(waiting, 4);
  EXPECT_EQ(left, 4);
}

TEST(HttpServer, RefusesAKeyThatIsAnothers) {
  const TemporaryFolder folder;
  HttpOptions options = any_port();
  options.certificate = folder.path() / "cert.pem";
  options.key = folder.path() / "other.pem";
  write_certificate(options.certificate, folder.path() / "key.pem");
  write_certificate(folder.path() / "unused.pem", options.key);
  EXPECT_THROW(HttpServer(options, answer, fault_reply), Error);
}

}  // namespace
}  // namespace leq::test
