// libcurl as part of the program.
#include <algorithm>
#include <array>
#include <filesystem>

#include "hub/transport/curl_calls.h"

namespace leq {
namespace {

// Where distributions keep them: Debian and Arch, Fedora, openSUSE, Alpine.
constexpr std::array kCertificates = {"/etc/ssl/certs/ca-certificates.crt",
                                      "/etc/pki/tls/certs/ca-bundle.crt",
                                      "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                      "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};

}  // namespace

CurlCalls find_curl() {
  const auto there = std::ranges::find_if(kCertificates, [](const char* file) {
    std::error_code ignored;
    return std::filesystem::exists(file, ignored);
  });
  return {curl_global_init,    curl_easy_init,
          curl_easy_reset,     curl_easy_setopt,
          curl_easy_perform,   curl_easy_cleanup,
          curl_easy_strerror,  curl_slist_append,
          curl_slist_free_all, there == kCertificates.end() ? kCertificates.front() : *there};
}

}  // namespace leq
