#include "server/access.h"

#include <algorithm>

#include "base/sha256.h"
#include "server/api_error.h"

namespace leq {
namespace {

// Without its port: "[::1]:8080" is "[::1]".
std::string_view host_name(std::string_view host) {
  const std::size_t bracket = host.rfind(']');
  const std::size_t colon = host.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  return has_port ? host.substr(0, colon) : host;
}

bool same_letters(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

// Of digests of one length, so that neither time nor length tells how much of a key is right.
bool same_text(std::string_view a, std::string_view b) {
  const std::string x = sha256_hex(a);
  const std::string y = sha256_hex(b);
  unsigned different = 0;
  for (std::size_t i = 0; i < x.size(); ++i) different |= static_cast<unsigned>(x[i] ^ y[i]);
  return different == 0;
}

bool is_own_site(std::string_view origin, std::string_view host) {
  const std::size_t slashes = origin.find("://");
  return slashes != std::string_view::npos && same_letters(origin.substr(slashes + 3), host);
}

bool is_allowed_site(std::string_view origin, const AccessRules& rules) {
  return std::ranges::any_of(rules.origins, [&](const std::string& one) {
    return one == "*" || same_letters(one, origin);
  });
}

}  // namespace

std::vector<std::string> local_names(std::string_view host) {
  const bool is_local = host == "localhost" || host == "::1" || host.starts_with("127.");
  if (!is_local) return {};
  return {"localhost", "127.0.0.1", "[::1]", std::string(host)};
}

void check_site(const HttpRequest& request, const AccessRules& rules) {
  const std::string_view host = request.header("host");
  const auto is_host = [&](const std::string& one) { return same_letters(one, host_name(host)); };
  if (!rules.hosts.empty() && !host.empty() && std::ranges::none_of(rules.hosts, is_host)) {
    throw ApiError(403, "the server is not known under this host name", "wrong_host");
  }
  const std::string_view origin = request.header("origin");
  if (origin.empty() || is_own_site(origin, host) || is_allowed_site(origin, rules)) return;
  throw ApiError(403, "pages of other sites may not ask this server", "wrong_origin");
}

void check_key(const HttpRequest& request, const AccessRules& rules) {
  if (rules.keys.empty()) return;
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view given = request.header("authorization");
  if (given.size() >= kBearer.size() && same_letters(given.substr(0, kBearer.size()), kBearer)) {
    given.remove_prefix(kBearer.size());
  } else {
    given = request.header("x-api-key");
  }
  bool right = false;
  for (const std::string& key : rules.keys) right |= same_text(key, given);
  if (!right) throw ApiError(401, "the API key is missing or wrong", "invalid_api_key");
}

HttpHeaders site_headers(const HttpRequest& request, const AccessRules& rules) {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !is_allowed_site(origin, rules)) return {};
  return {{"Access-Control-Allow-Origin", std::string(origin)}, {"Vary", "Origin"}};
}

HttpReply preflight_reply(const HttpRequest& request, const AccessRules& rules) {
  HttpReply reply;
  reply.status = 204;
  reply.type = "";
  reply.headers = site_headers(request, rules);
  if (reply.headers.empty()) return reply;
  reply.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST");
  reply.headers.emplace_back("Access-Control-Allow-Headers",
                             "Authorization, Content-Type, X-Api-Key");
  reply.headers.emplace_back("Access-Control-Max-Age", "600");
  return reply;
}

}  // namespace leq
