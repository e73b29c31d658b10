// Access rules: API keys, accepted host names, and cross-origin requests.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http.h"

namespace leq {

struct AccessRules {
  std::vector<std::string> keys;  // a request must have one of them; empty: no key is needed
  // Accepted values of the Host header; empty: any. Prevents DNS rebinding, where a page of another
  // site, whose own name resolves to this server's address, sends requests.
  std::vector<std::string> hosts;
  bool addresses = false;            // accept IP addresses as hosts, which name no site
  std::vector<std::string> origins;  // other sites whose pages may send requests; "*": all
};

// Sets the accepted hosts for a server that listens at `host`. On a loopback address these are this
// machine's loopback names; otherwise the server's own name and any IP address, or all hosts if
// there are keys, because pages of other sites have no key.
void allow_own_names(AccessRules& rules, std::string_view host);

// Throws ApiError 403 if the Host header is not accepted or if the request comes from a page of a
// site that is not allowed.
void check_site(const HttpRequest& request, const AccessRules& rules);
// Throws ApiError 401 if the key is missing or wrong. Takes the same time for any wrong key.
void check_key(const HttpRequest& request, const AccessRules& rules);

// Headers of every reply, for a page of another site with the CORS headers that let it read this.
HttpHeaders site_headers(const HttpRequest& request, const AccessRules& rules);
// The reply to a CORS preflight request (OPTIONS), without the headers that every reply has.
HttpReply preflight_reply(const HttpRequest& request, const AccessRules& rules);

}  // namespace leq
