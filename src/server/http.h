// HTTP/1.1 messages of a server: an incremental parser of requests, a writer of response heads, and
// the interface of one request and its reply. There is no I/O here, and no socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace leq {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;   // "GET"
  std::string path;     // percent-decoded, without the query
  std::string query;    // after the question mark, not decoded
  HttpHeaders headers;  // names in lower case
  std::string body;     // with chunks joined
  bool keep_alive = true;
  bool takes_chunks = true;  // false for HTTP/1.0, where a stream ends with the connection

  // The value of the first header of this name (in lower case); empty if there is none.
  std::string_view header(std::string_view name) const;
  bool has_header(std::string_view name) const;
  // The percent-decoded value of "?name=value"; empty if there is none.
  std::string query_value(std::string_view name) const;
};

struct HttpLimits {
  std::size_t head_bytes = 16 << 10;  // request line, headers and trailers
  std::size_t headers = 100;
  std::size_t body_bytes = 16 << 20;
};

// Why a request is malformed: a status and a message.
struct HttpFault {
  int status = 400;
  std::string text;
};

// Parses one request from bytes in pieces of any size.
class HttpReader {
 public:
  explicit HttpReader(const HttpLimits& limits) : limits_(limits) {}

  // Consumes bytes up to the end of the request and returns their number; the remaining bytes
  // belong to the next request. Consumes nothing once the request is complete or malformed.
  std::size_t push(std::string_view bytes);

  bool started() const { return bytes_ > 0; }
  bool complete() const { return part_ == Part::complete; }
  // Whether the request line and the headers are parsed.
  bool head_complete() const { return part_ != Part::request_line && part_ != Part::header; }
  const HttpRequest& request() const { return request_; }
  const std::optional<HttpFault>& fault() const { return fault_; }
  // Whether the client waits for "100 Continue" before it sends its body; true at most once.
  bool take_expect_continue();
  std::size_t held_bytes() const { return line_.size() + request_.body.size(); }
  // The complete request, or the part parsed so far.
  HttpRequest take() { return std::move(request_); }

 private:
  enum class Part : std::uint8_t {
    request_line,
    header,
    body,
    chunk_size,
    chunk,
    chunk_end,
    trailer,
    complete
  };

  void take_line(std::string_view line);
  void take_request_line(std::string_view line);
  void take_header(std::string_view line);
  void end_head();
  void take_chunk_size(std::string_view line);
  void fail(int status, std::string text);

  HttpLimits limits_;
  HttpRequest request_;
  Part part_ = Part::request_line;
  std::string line_, authority_;  // of a request line in absolute form
  std::size_t bytes_ = 0;         // bytes of the whole request
  std::size_t head_bytes_ = 0;    // length of all lines so far
  std::uint64_t left_ = 0;        // remaining length of the body or chunk
  bool wants_continue_ = false;
  std::optional<HttpFault> fault_;
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  HttpHeaders headers;
};

// A request that must be answered exactly once, with reply() or as a stream.
// What handlers tell about a request for its line in the log.
struct RequestFacts {
  std::string model;  // empty: the request used none
  std::int64_t prompt_tokens = 0, cached_tokens = 0, reply_tokens = 0;
};

class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  RequestFacts facts;

  virtual const HttpRequest& request() const = 0;
  virtual void reply(const HttpReply& reply) = 0;
  // Begins a reply whose pieces are sent unbuffered. Returns false if the client disconnected.
  virtual bool begin_stream(const HttpReply& head) = 0;
  virtual bool write(std::string_view piece) = 0;
  virtual bool end_stream() = 0;
  // Returns false once the client has closed the connection.
  virtual bool client_is_there() = 0;
};

// Formats seconds since 1970 as "Thu, 26 Nov 2026 05:07:45 GMT".
std::string http_date(std::int64_t seconds);

// Returns "Not Found" for 404 and so on; "" for a status that is not listed here.
std::string_view status_name(int status);

// How the end of a reply's body is indicated.
struct HttpBody {
  enum class Framing : std::uint8_t { length, chunks, none };  // none: no body, or until closed
  Framing framing = Framing::length;
  std::size_t bytes = 0;
};

// The status line, the headers and the empty line after them.
std::string response_head(int status, const HttpHeaders& headers, const HttpBody& body,
                          bool keep_alive);
// One chunk of a chunked body; an empty chunk ends the body.
std::string http_chunk(std::string_view text);

// Base64 of bytes (RFC 4648, with padding).
std::string base64_of(std::string_view bytes);

}  // namespace leq
