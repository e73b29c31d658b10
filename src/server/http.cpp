#include "server/http.h"

#include <algorithm>
#include <charconv>
#include <ctime>

#include "base/ascii.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::size_t kMaxChunkDigits = 8;

// Whether the text is a token of RFC 9110: a header name or a method.
bool is_token(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (c >= '0' && c <= '9') || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool is_value(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return c == '\t' || (byte >= 0x20 && byte != 0x7f);
  });
}

bool is_header(std::string_view line) {
  const std::size_t colon = line.find(':');
  return colon != std::string_view::npos && is_token(line.substr(0, colon)) &&
         is_value(line.substr(colon + 1));
}

template <class Number>
std::optional<Number> whole_number(std::string_view text, int base) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

// Percent decoding: %41 becomes A; invalid escapes are left unchanged.
std::string without_percents(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      if (const auto byte = whole_number<unsigned char>(text.substr(i + 1, 2), 16)) {
        out += static_cast<char>(*byte);
        i += 2;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

struct StatusName {
  int status;
  std::string_view name;
};
constexpr StatusName kStatusNames[] = {
    {200, "OK"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {408, "Request Timeout"},
    {411, "Length Required"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {505, "HTTP Version Not Supported"},
};

}  // namespace

std::string HttpRequest::query_value(std::string_view name) const {
  for (const std::string_view pair : split(query, "&")) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string_view::npos || pair.substr(0, equals) != name) continue;
    return without_percents(pair.substr(equals + 1));
  }
  return "";
}

bool HttpRequest::has_header(std::string_view name) const {
  return std::ranges::find(headers, name, &HttpHeaders::value_type::first) != headers.end();
}

std::string_view HttpRequest::header(std::string_view name) const {
  const auto found = std::ranges::find(headers, name, &HttpHeaders::value_type::first);
  return found != headers.end() ? std::string_view(found->second) : std::string_view();
}

void HttpReader::fail(int status, std::string text) {
  if (!fault_) fault_ = HttpFault{status, std::move(text)};
}

std::size_t HttpReader::push(std::string_view bytes) {
  std::size_t used = 0;
  while (used < bytes.size() && !complete() && !fault_) {
    const std::string_view rest = bytes.substr(used);
    if (part_ == Part::body || part_ == Part::chunk) {
      const std::size_t taken =
          static_cast<std::size_t>(std::min<std::uint64_t>(left_, rest.size()));
      request_.body.append(rest.substr(0, taken));
      left_ -= taken;
      used += taken;
      if (left_ == 0) part_ = part_ == Part::body ? Part::complete : Part::chunk_end;
      continue;
    }
    const std::size_t newline = rest.find('\n');
    const std::size_t taken = newline == std::string_view::npos ? rest.size() : newline + 1;
    head_bytes_ += taken;
    if (head_bytes_ > limits_.head_bytes) {
      fail(431, "request line and headers of more than " + std::to_string(limits_.head_bytes) +
                    " bytes");
      break;
    }
    line_.append(rest.substr(0, taken));
    used += taken;
    if (newline == std::string_view::npos) break;
    line_.pop_back();
    if (line_.ends_with('\r')) {
      line_.pop_back();
    } else if (part_ == Part::chunk_size || part_ == Part::chunk_end) {
      // Another reader could see a chunk end elsewhere.
      fail(400, "a chunk whose line does not end with CR LF");
      break;
    }
    take_line(line_);
    line_.clear();
  }
  bytes_ += used;
  return used;
}

void HttpReader::take_line(std::string_view line) {
  switch (part_) {
    case Part::request_line:
      if (!line.empty()) take_request_line(line);  // empty lines before a request are allowed
      return;
    case Part::header:
      return line.empty() ? end_head() : take_header(line);
    case Part::chunk_size:
      return take_chunk_size(line);
    case Part::chunk_end:
      if (!line.empty()) fail(400, "a chunk that is longer than it says");
      part_ = Part::chunk_size;
      head_bytes_ = 0;  // the limit does not apply to the number of chunks
      return;
    case Part::trailer:
      if (line.empty())
        part_ = Part::complete;
      else if (!is_header(line))
        fail(400, "a trailer that is not \"name: value\"");
      return;
    case Part::body:
    case Part::chunk:
    case Part::complete:
      return;
  }
}

void HttpReader::take_request_line(std::string_view line) {
  const auto words = split(line, " ");
  // A proxy names the whole address (absolute form, RFC 9112 3.2.2), OPTIONS may ask of all ("*").
  std::string_view target = words.size() == 3 ? words[1] : "";
  const std::size_t mark = target.find("://");
  const std::string scheme = ascii_lower(target.substr(0, mark));
  if (mark != std::string_view::npos && (scheme == "http" || scheme == "https")) {
    target.remove_prefix(mark + 3);
    authority_ = target.substr(0, target.find_first_of("/?"));
    target.remove_prefix(authority_.size());
    if (target.empty()) target = "/";
    if (authority_.empty()) target = "";
  }
  const bool is_all = target == "*" && words[0] == "OPTIONS";
  if (!(target.starts_with('/') || is_all) || !is_token(words[0]) || !is_value(words[1])) {
    return fail(400, "expected a request line as \"GET /health HTTP/1.1\"");
  }
  if (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0") {
    return fail(505, "expected HTTP/1.1 or HTTP/1.0");
  }
  request_.method = words[0];
  const std::size_t end = target.find('?');
  request_.path = without_percents(target.substr(0, end));
  if (end != std::string_view::npos) request_.query = target.substr(end + 1);
  request_.keep_alive = request_.takes_chunks = words[2] == "HTTP/1.1";
  part_ = Part::header;
}

void HttpReader::take_header(std::string_view line) {
  if (!is_header(line)) return fail(400, "a header that is not \"name: value\"");
  const std::size_t colon = line.find(':');
  if (request_.headers.size() == limits_.headers) {
    return fail(431, "more than " + std::to_string(limits_.headers) + " headers");
  }
  const std::string name = ascii_lower(line.substr(0, colon));
  const bool once = name == "host" || name == "content-length" || name == "transfer-encoding";
  if (once && request_.has_header(name)) return fail(400, "the header " + name + " occurs twice");
  request_.headers.emplace_back(name, trim(line.substr(colon + 1)));
}

void HttpReader::end_head() {
  const std::string connection = ascii_lower(request_.header("connection"));
  if (connection.find("close") != std::string::npos) request_.keep_alive = false;
  if (request_.takes_chunks && !request_.has_header("host"))
    return fail(400, "HTTP/1.1 without a Host header");
  if (!authority_.empty()) {  // it counts, not the header (RFC 9112 3.2.2)
    std::erase_if(request_.headers, [](const auto& header) { return header.first == "host"; });
    request_.headers.emplace_back("host", authority_);
  }
  const std::string coding = ascii_lower(request_.header("content-encoding"));
  if (!coding.empty() && coding != "identity") {
    return fail(415, "a body with the content-encoding " + coding + "; send it without");
  }
  const std::string_view length = request_.header("content-length");
  const std::string encoding = ascii_lower(request_.header("transfer-encoding"));
  wants_continue_ = ascii_lower(request_.header("expect")) == "100-continue";
  if (request_.has_header("transfer-encoding")) {
    if (encoding != "chunked") return fail(501, "the only transfer encoding here is chunked");
    if (request_.has_header("content-length"))
      return fail(400, "content-length and transfer-encoding contradict");
    head_bytes_ = 0;
    part_ = Part::chunk_size;
    return;
  }
  if (!request_.has_header("content-length")) {
    part_ = Part::complete;
    return;
  }
  const auto bytes = whole_number<std::uint64_t>(length, 10);
  if (!bytes) return fail(400, "content-length is no whole number");
  if (*bytes > limits_.body_bytes) {
    return fail(413, "a body of " + std::to_string(*bytes) + " bytes; the limit is " +
                         std::to_string(limits_.body_bytes));
  }
  left_ = *bytes;
  part_ = left_ > 0 ? Part::body : Part::complete;
}

void HttpReader::take_chunk_size(std::string_view line) {
  const std::string_view digits = trim(line.substr(0, line.find(';')));
  const auto bytes = whole_number<std::uint64_t>(digits, 16);
  if (!bytes || digits.size() > kMaxChunkDigits || !is_value(line))
    return fail(400, "a chunk without a size");
  if (*bytes > limits_.body_bytes - request_.body.size()) {
    return fail(413, "a body of more than " + std::to_string(limits_.body_bytes) + " bytes");
  }
  left_ = *bytes;
  part_ = left_ > 0 ? Part::chunk : Part::trailer;
}

bool HttpReader::take_expect_continue() {
  const bool waits = part_ == Part::body || part_ == Part::chunk_size;
  return waits && std::exchange(wants_continue_, false);
}

std::string http_date(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm utc = {};
  gmtime_r(&time, &utc);
  constexpr std::string_view kDays = "SunMonTueWedThuFriSat";
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const auto name = [](std::string_view names, int i) {
    return std::string(names.substr(static_cast<std::size_t>(i) * 3, 3));
  };
  const auto two = [](int number) { return (number < 10 ? "0" : "") + std::to_string(number); };
  return name(kDays, utc.tm_wday) + ", " + two(utc.tm_mday) + " " + name(kMonths, utc.tm_mon) +
         " " + std::to_string(1900 + utc.tm_year) + " " + two(utc.tm_hour) + ":" + two(utc.tm_min) +
         ":" + two(utc.tm_sec) + " GMT";
}

std::string_view status_name(int status) {
  const auto* found = std::ranges::find(kStatusNames, status, &StatusName::status);
  return found != std::end(kStatusNames) ? found->name : std::string_view();
}

std::string response_head(int status, const HttpHeaders& headers, const HttpBody& body,
                          bool keep_alive) {
  std::string head =
      "HTTP/1.1 " + std::to_string(status) + ' ' + std::string(status_name(status)) + "\r\n";
  for (const auto& [name, value] : headers) head += name + ": " + value + "\r\n";
  if (body.framing == HttpBody::Framing::chunks) head += "Transfer-Encoding: chunked\r\n";
  if (body.framing == HttpBody::Framing::length) {
    head += "Content-Length: " + std::to_string(body.bytes) + "\r\n";
  }
  head += keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return head;
}

std::string http_chunk(std::string_view text) {
  char digits[2 * sizeof text.size()];
  const auto end = std::to_chars(digits, digits + sizeof digits, text.size(), 16).ptr;
  std::string chunk(digits, end);
  chunk += "\r\n";
  chunk += text;
  chunk += "\r\n";
  return chunk;
}

std::string base64_of(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      out += k <= count ? kLetters[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return out;
}

}  // namespace leq
