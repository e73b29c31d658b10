// Parses requests with any bytes, and independently of how the bytes are split.
#include "server/http.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace leq {
namespace {

const std::string kPost =
    "POST /v1/chat%20x?a=1&b=%41+c HTTP/1.1\r\nHost: here\r\nX-Two:  words here \r\n"
    "Content-Length: 5\r\n\r\nhello";
const std::string kChunked =
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5\r\nhello\r\nA;x=y\r\n 0123456\r\n\r\n0\r\nTrailer: t\r\n\r\n";

HttpReader read_in_pieces(const std::string& bytes, std::size_t piece, std::size_t* used) {
  HttpReader reader({});
  *used = 0;
  while (*used < bytes.size() && !reader.complete() && !reader.fault()) {
    *used += reader.push(std::string_view(bytes).substr(*used, piece));
  }
  return reader;
}

TEST(HttpReader, TakesARequestApart) {
  HttpReader reader({});
  EXPECT_EQ(reader.push(kPost + "GET"), kPost.size());
  ASSERT_TRUE(reader.complete());
  const HttpRequest request = reader.take();
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/chat x");
  EXPECT_EQ(request.header("x-two"), "words here");
  EXPECT_EQ(request.header("none"), "");
  EXPECT_EQ(request.body, "hello");
  EXPECT_TRUE(request.keep_alive);
}

TEST(HttpReader, JoinsChunks) {
  HttpReader reader({});
  EXPECT_EQ(reader.push(kChunked), kChunked.size());
  ASSERT_TRUE(reader.complete()) << (reader.fault() ? reader.fault()->text : "more is expected");
  EXPECT_EQ(reader.take().body, "hello 0123456\r\n");
}

TEST(HttpReader, ReadsTheSameHoweverItIsCut) {
  for (const std::string& request : {kPost, kChunked}) {
    std::size_t used = 0;
    HttpReader whole = read_in_pieces(request, request.size(), &used);
    const HttpRequest expected = whole.take();
    for (std::size_t piece = 1; piece < request.size(); ++piece) {
      HttpReader reader = read_in_pieces(request + "rest", piece, &used);
      ASSERT_TRUE(reader.complete()) << piece;
      EXPECT_EQ(used, request.size()) << piece;
      const HttpRequest found = reader.take();
      EXPECT_EQ(found.body, expected.body);
      EXPECT_EQ(found.headers, expected.headers);
      EXPECT_EQ(found.path, expected.path);
    }
  }
}

TEST(HttpReader, WaitsForMoreAtEveryPrefix) {
  for (const std::string& request : {kPost, kChunked}) {
    for (std::size_t size = 0; size < request.size(); ++size) {
      HttpReader reader({});
      EXPECT_EQ(reader.push(request.substr(0, size)), size);
      EXPECT_FALSE(reader.complete()) << size;
      EXPECT_FALSE(reader.fault()) << size;
      EXPECT_EQ(reader.started(), size > 0);
    }
  }
}

TEST(HttpReader, RefusesWhatIsNoRequest) {
  struct Case {
    std::string bytes;
    int status;
  };
  const std::vector<Case> cases = {
      {"GET\r\n", 400},
      {"GET http:///x HTTP/1.1\r\n", 400},
      {"GET http HTTP/1.1\r\n", 400},
      {"GET https HTTP/1.1\r\n", 400},
      {"GET ftp://x/ HTTP/1.1\r\n", 400},
      {"GET * HTTP/1.1\r\n", 400},
      {"GET /\x01 HTTP/1.1\r\n", 400},
      {"G@T / HTTP/1.1\r\n", 400},
      {"GET / HTTP/2.0\r\n", 505},
      {"GET / HTTP/1.1\r\nno colon\r\n", 400},
      {"GET / HTTP/1.1\r\n folded: line\r\n", 400},
      {"GET / HTTP/1.1\r\nbad name: x\r\n", 400},
      {"GET / HTTP/1.1\r\nname: a\x7fz\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400},
      {"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1x\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\nGET / HTTP/1.1\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 16777217\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\r\n", 501},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\n0\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\r\nhello\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5;a\x01\r\nhello\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nGET / "
       "HTTP/1.1\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT\x01: t\r\n\r\n",
       400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n000000000001\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},  // without Host
      {std::string("GET / HTTP/1.1\r\nna\0me: x\r\n", 26), 400},
      {std::string("G\0T / HTTP/1.1\r\n", 16), 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n", 415},
      {"GET /" + std::string(20000, 'a'), 431},
      {"GET / HTTP/1.1\r\n" + std::string(17000, 'a'), 431},
  };
  for (const Case& one : cases) {
    HttpReader reader({});
    reader.push(one.bytes);
    ASSERT_TRUE(reader.fault()) << one.bytes.substr(0, 80);
    EXPECT_EQ(reader.fault()->status, one.status) << one.bytes.substr(0, 80);
  }
  HttpReader many({});
  std::string bytes = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 101; ++i) bytes += "a" + std::to_string(i) + ": x\r\n";
  many.push(bytes);
  ASSERT_TRUE(many.fault());
  EXPECT_EQ(many.fault()->status, 431);
}

// RFC 9112 3.2.2 and 3.2.4.
TEST(HttpReader, TakesAWholeAddressAndAnAsterisk) {
  struct Case {
    std::string target, path, query, host;
  };
  const Case cases[] = {{"http://proxied:81/v1/models?a=1", "/v1/models", "a=1", "proxied:81"},
                        {"HTTPS://proxied", "/", "", "proxied"},
                        {"/v1/models", "/v1/models", "", "header"},
                        {"*", "*", "", "header"}};
  for (const Case& one : cases) {
    HttpReader reader({});
    reader.push("OPTIONS " + one.target + " HTTP/1.1\r\nHost: header\r\n\r\n");
    ASSERT_TRUE(reader.complete()) << one.target;
    const HttpRequest request = reader.take();
    EXPECT_EQ(request.path, one.path) << one.target;
    EXPECT_EQ(request.query, one.query) << one.target;
    EXPECT_EQ(request.header("host"), one.host) << one.target;
  }
}

TEST(HttpReader, KnowsWhenToCloseAndWhenToSayContinue) {
  const auto request = [](const std::string& bytes) {
    HttpReader reader({});
    reader.push(bytes);
    return reader.take();
  };
  EXPECT_FALSE(request("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_FALSE(request("GET / HTTP/1.0\r\n\r\n").takes_chunks);
  EXPECT_FALSE(request("GET / HTTP/1.1\r\nHost: h\r\nConnection: Close\r\n\r\n").keep_alive);
  HttpReader waits({});
  waits.push("POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_TRUE(waits.take_expect_continue());
  EXPECT_FALSE(waits.take_expect_continue());
}

TEST(HttpReader, TellsWhenTheHeadIsThere) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n";
  HttpReader reader({});
  reader.push(head.substr(0, head.size() - 1));
  EXPECT_FALSE(reader.head_complete());
  reader.push("\n");
  EXPECT_TRUE(reader.head_complete());
  EXPECT_FALSE(reader.complete());
  EXPECT_EQ(reader.request().path, "/");
}

TEST(HttpReply, TheDateIsThatOfRfc9110) {
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
}

TEST(HttpReply, HeadsAndChunksAreWritten) {
  EXPECT_EQ(response_head(200, {{"A", "b"}}, {HttpBody::Framing::length, 3}, true),
            "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 3\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(response_head(503, {}, {HttpBody::Framing::chunks}, false),
            "HTTP/1.1 503 Service Unavailable\r\nTransfer-Encoding: chunked\r\n"
            "Connection: close\r\n\r\n");
  EXPECT_EQ(http_chunk("0123456789abcdef!"), "11\r\n0123456789abcdef!\r\n");
  EXPECT_EQ(http_chunk(""), "0\r\n\r\n");
}

}  // namespace
}  // namespace leq
