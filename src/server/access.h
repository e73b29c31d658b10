// Access rules: API keys, host names of this server, and web pages of other sites.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_server.h"

namespace leq {

struct AccessRules {
  std::vector<std::string> keys;  // any one of them is accepted; none: requests need no key
  // Accepted values of the Host header; none: any. Blocks DNS rebinding: a page of another site
  // whose own name resolves to this server's address.
  std::vector<std::string> hosts;
  bool addresses = false;            // IP addresses are accepted hosts: no site has one as its name
  std::vector<std::string> origins;  // other sites whose pages may send requests; "*": all
};

// Sets the accepted hosts for a server that listens at `host`: on loopback addresses this machine's
// loopback names; else its own name and any address too, or all hosts where there are keys: a page
// of another site has no key.
void allow_own_names(AccessRules& rules, std::string_view host);

// Throws ApiError 403 where the Host header is not accepted or the request comes from a page of a
// site that is not allowed.
void check_site(const HttpRequest& request, const AccessRules& rules);
// Throws ApiError 401 where the key is missing or wrong. Takes the same time for any wrong key.
void check_key(const HttpRequest& request, const AccessRules& rules);

// CORS headers that let a page of another site read the reply; empty for this server's own page.
HttpHeaders site_headers(const HttpRequest& request, const AccessRules& rules);
// The reply to a CORS preflight request (OPTIONS).
HttpReply preflight_reply(const HttpRequest& request, const AccessRules& rules);

}  // namespace leq
