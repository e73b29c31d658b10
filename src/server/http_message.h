// HTTP/1.1 as a server reads and writes it: requests out of bytes that come in any pieces, and the
// heads of replies. Nothing here waits or knows a socket.
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
  std::string path;     // percent signs resolved, without what a question mark begins
  std::string query;    // what stands after the question mark, as it was sent
  HttpHeaders headers;  // names in lower case
  std::string body;     // chunks joined
  bool keep_alive = true;
  bool takes_chunks = true;  // false: HTTP/1.0, where the end of the connection ends a stream

  // The first one's value; empty where there is none. `name` in lower case.
  std::string_view header(std::string_view name) const;
  // Of "?name=value", percent signs resolved; empty where there is none.
  std::string query_value(std::string_view name) const;
};

struct HttpLimits {
  std::size_t head_bytes = 16 << 10;  // request line and headers, trailers too
  std::size_t headers = 100;
  std::size_t body_bytes = 16 << 20;
};

// What is wrong with a request: a status and a sentence.
struct HttpFault {
  int status = 400;
  std::string text;
};

// One request out of bytes. How they are cut into pieces changes nothing.
class HttpReader {
 public:
  explicit HttpReader(const HttpLimits& limits) : limits_(limits) {}

  // Takes bytes up to the request's end and returns how many; what is left is the next request's.
  // Once it is complete or at fault it takes no more.
  std::size_t push(std::string_view bytes);

  bool started() const { return bytes_ > 0; }
  bool complete() const { return part_ == Part::complete; }
  // Request line and headers are there.
  bool head_complete() const { return part_ != Part::request_line && part_ != Part::header; }
  const HttpRequest& request() const { return request_; }
  const std::optional<HttpFault>& fault() const { return fault_; }
  // The client waits for "100 Continue" before it sends its body. True once.
  bool take_wish_to_continue();
  std::size_t held_bytes() const { return line_.size() + request_.body.size(); }
  // The request, complete, or what is known of it.
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
  bool has_header(std::string_view name) const;

  HttpLimits limits_;
  HttpRequest request_;
  Part part_ = Part::request_line;
  std::string line_;
  std::size_t bytes_ = 0;       // of everything
  std::size_t head_bytes_ = 0;  // of lines
  std::uint64_t left_ = 0;      // of the body, or of the chunk
  bool wants_continue_ = false;
  std::optional<HttpFault> fault_;
};

// "Thu, 26 Nov 2026 05:07:45 GMT", of seconds since 1970.
std::string http_date(std::int64_t seconds);

// "Not Found"; "" of a status that has no name here.
std::string_view status_name(int status);

// How a reply's body is told from what follows it.
struct HttpBody {
  enum class Framing : std::uint8_t { length, chunks, none };  // none: no body, or until the end
  Framing framing = Framing::length;
  std::size_t bytes = 0;
};

// Status line and headers with the empty line after them.
std::string response_head(int status, const HttpHeaders& headers, const HttpBody& body,
                          bool keep_alive);
// A piece of a body that comes in chunks; an empty one ends it.
std::string http_chunk(std::string_view text);

}  // namespace leq
