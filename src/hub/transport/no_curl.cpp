// The HTTP client of builds without libcurl.
#include "base/error.h"
#include "hub/web_client.h"

namespace leq {

struct WebClient::State {};

WebClient::WebClient() {
  fail(ErrorKind::io,
       "this build of leq has no libcurl, and cannot download: build it where "
       "libcurl4-openssl-dev is installed, or fetch the model with `hf download REPOSITORY`");
}
WebClient::~WebClient() = default;
WebResponse WebClient::send(const WebRequest&) { return {}; }

}  // namespace leq
