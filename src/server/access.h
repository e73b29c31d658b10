// Who may ask: keys, names of this host, and pages of other sites.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_server.h"

namespace leq {

struct AccessRules {
  std::vector<std::string> keys;  // any of them will do; none: requests need no key
  // Names under which the server may be asked; none: any. Keeps a page of another site from asking
  // under its own name, which it can have resolved to this server's address.
  std::vector<std::string> hosts;
  bool addresses = false;            // addresses are such names too: no site has one as its name
  std::vector<std::string> origins;  // other sites whose pages may ask; "*": all
};

// The names for a server that listens at `host`: those of this machine where only it can reach
// that; else this machine's own name and any address. None, which is any name, where there are
// keys: a page of another site has none.
void allow_own_names(AccessRules& rules, std::string_view host);

// Throws ApiError 403 where the request is for another host or comes from a page of a site that is
// not allowed.
void check_site(const HttpRequest& request, const AccessRules& rules);
// Throws ApiError 401 where there is no key or a wrong one. It takes as long for any wrong key.
void check_key(const HttpRequest& request, const AccessRules& rules);

// What tells a browser that this page may read the reply; empty where it is this server's own.
HttpHeaders site_headers(const HttpRequest& request, const AccessRules& rules);
// The answer to a browser that asks before it asks (OPTIONS).
HttpReply preflight_reply(const HttpRequest& request, const AccessRules& rules);

}  // namespace leq
