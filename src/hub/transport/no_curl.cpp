// The HTTP client of builds without libcurl.
#include "base/error.h"
#include "hub/http.h"

namespace leq {

struct HttpClient::State {};

HttpClient::HttpClient() {
  fail(ErrorKind::io,
       "this build of leq has no libcurl, and cannot download: build it where "
       "libcurl4-openssl-dev is installed, or fetch the model with `hf download REPOSITORY`");
}
HttpClient::~HttpClient() = default;
HttpResponse HttpClient::send(const HttpRequest&) { return {}; }

}  // namespace leq
