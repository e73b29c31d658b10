#include "server/access.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "base/text.h"
#include "server/fields.h"

namespace leq {
namespace {

constexpr std::size_t kShownHostBytes = 80;

// The host without its port: "[::1]" if `host` is "[::1]:8080". A port has digits only.
std::string_view host_name(std::string_view host) {
  const std::size_t colon = host.find_last_not_of("0123456789");
  if (colon == std::string_view::npos || host[colon] != ':') return host;
  const std::string_view name = host.substr(0, colon);
  return name.find(':') == std::string_view::npos || name.ends_with(']') ? name : host;
}

// Whether the host is an IP address, such as 192.0.2.7 or [2001:db8::1].
bool is_address(std::string_view host) {
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  const std::string text(bracketed ? host.substr(1, host.size() - 2) : host);
  std::array<unsigned char, 16> address;
  return inet_pton(bracketed ? AF_INET6 : AF_INET, text.c_str(), address.data()) == 1;
}

// Compares digests of equal length, so the time does not reveal how much of a key is right.
bool same_text(std::string_view a, std::string_view b) {
  const std::string x = sha256_hex(a);
  const std::string y = sha256_hex(b);
  unsigned different = 0;
  for (std::size_t i = 0; i < x.size(); ++i) different |= static_cast<unsigned>(x[i] ^ y[i]);
  return different == 0;
}

bool is_own_site(std::string_view origin, std::string_view host) {
  const std::size_t slashes = origin.find("://");
  return slashes != std::string_view::npos && same_ignoring_case(origin.substr(slashes + 3), host);
}

bool is_allowed_site(std::string_view origin, const AccessRules& rules) {
  return std::ranges::any_of(rules.origins, [&](const std::string& one) {
    return one == "*" || same_ignoring_case(one, origin);
  });
}

}  // namespace

void allow_own_names(AccessRules& rules, std::string_view host) {
  rules.hosts = {"localhost", "127.0.0.1", "[::1]", std::string(host)};
  if (host == "localhost" || host == "::1" || host.starts_with("127.")) return;
  if (!rules.keys.empty()) {
    rules.hosts.clear();
    return;
  }
  rules.addresses = true;
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0) return;
  rules.hosts.emplace_back(name);
  rules.hosts.push_back(std::string(name) + ".local");
}

void check_site(const HttpRequest& request, const AccessRules& rules) {
  const std::string_view host = request.header("host");
  const auto is_host = [&](const std::string& one) {
    return one == "*" || same_ignoring_case(one, host_name(host));
  };
  const bool known = rules.hosts.empty() || host.empty() ||
                     (rules.addresses && is_address(host_name(host))) ||
                     std::ranges::any_of(rules.hosts, is_host);
  if (!known) {
    throw ApiError(403,
                   "the server is not known under the host name " +
                       printable(host_name(host), kShownHostBytes) +
                       " (see allow-host in docs/server.md)",
                   "wrong_host");
  }
  const std::string_view origin = request.header("origin");
  if (origin.empty() || is_own_site(origin, host) || is_allowed_site(origin, rules)) return;
  throw ApiError(403, "cross-origin request refused (see cors-origin in docs/server.md)",
                 "wrong_origin");
}

void check_key(const HttpRequest& request, const AccessRules& rules) {
  if (rules.keys.empty()) return;
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view given = request.header("authorization");
  if (given.size() >= kBearer.size() &&
      same_ignoring_case(given.substr(0, kBearer.size()), kBearer)) {
    given.remove_prefix(kBearer.size());
  } else {
    given = request.header("x-api-key");
  }
  bool right = false;
  for (const std::string& key : rules.keys) right |= same_text(key, given);
  if (!right) throw ApiError(401, "the API key is missing or wrong", "invalid_api_key");
}

HttpHeaders site_headers(const HttpRequest& request, const AccessRules& rules) {
  HttpHeaders headers = {{"X-Content-Type-Options", "nosniff"}};
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !is_allowed_site(origin, rules)) return headers;
  headers.emplace_back("Access-Control-Allow-Origin", origin);
  headers.emplace_back("Access-Control-Expose-Headers", "X-Leq-Warnings, Retry-After");
  headers.emplace_back("Vary", "Origin");
  return headers;
}

HttpReply preflight_reply(const HttpRequest& request, const AccessRules& rules) {
  HttpReply reply;
  reply.status = 204;
  reply.type = "";
  if (!is_allowed_site(request.header("origin"), rules)) return reply;
  reply.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST");
  // All headers that the preflight request names are allowed, because clients send custom headers.
  const std::string_view wanted = request.header("access-control-request-headers");
  reply.headers.emplace_back(
      "Access-Control-Allow-Headers",
      wanted.empty() ? "Authorization, Content-Type, X-Api-Key" : std::string(wanted));
  reply.headers.emplace_back("Access-Control-Max-Age", "600");
  // A page of the Internet asks before it reaches a server of the local network.
  if (request.has_header("access-control-request-private-network")) {
    reply.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  }
  return reply;
}

}  // namespace leq
