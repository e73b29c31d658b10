// Any bytes as HTTP requests: the parsed requests and the error must not depend on how the bytes
// are split. The first byte of an input determines the length of the pieces.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/seeded.h"
#include "server/http.h"

namespace {

std::vector<std::string> examples() {
  return {
      "\x03GET /v1/models?a=%41&b HTTP/1.1\r\nHost: h\r\n\r\n",
      "\x07POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
      "\x01POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: "
      "t\r\n\r\n",
  };
}

// Returns a description of all requests in `bytes`.
std::string requests_in(std::string_view bytes, std::size_t piece) {
  constexpr leq::HttpLimits kLimits = {.head_bytes = 512, .headers = 8, .body_bytes = 256};
  std::string seen;
  while (true) {
    leq::HttpReader reader(kLimits);
    std::size_t used = 0;
    while (used < bytes.size() && !reader.complete() && !reader.fault()) {
      used += reader.push(bytes.substr(used, piece));
      if (reader.held_bytes() > kLimits.head_bytes + kLimits.body_bytes) std::abort();
    }
    bytes.remove_prefix(used);
    if (reader.fault()) return seen + std::to_string(reader.fault()->status);
    if (!reader.complete()) return seen + "...";
    const leq::HttpRequest request = reader.take();
    seen += request.method + ' ' + request.path + ' ';
    for (const auto& [name, value] : request.headers) seen += name + ':' + value + ';';
    seen += request.body + '\n';
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const std::size_t piece = 1 + data[0] % 32;
  if (requests_in(bytes, piece) != requests_in(bytes, bytes.size() + 1)) std::abort();
  return 0;
}
