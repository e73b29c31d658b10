// Requests to the hub: URLs, waiting when it asks for it, and words for its errors.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "hub/web_client.h"

namespace leq {

inline constexpr double kFirstWaitSeconds = 0.5;  // doubled at each further attempt

// Percent-encodes a path, or with url_part also its slashes.
std::string url_path(std::string_view path);
std::string url_part(std::string_view part);

// Seconds that the response asks to wait before the next attempt, otherwise `fallback`.
double wanted_wait(const WebResponse& response, double fallback);
// Waits, and tells `say` if it takes longer than a moment.
void wait_for_hub(double seconds, const std::string& why,
                  const std::function<void(const std::string&)>& say);
// Sends a request again while the hub answers 429 or 5xx, a few times.
WebResponse send_patiently(WebClient& client, const WebRequest& request,
                           const std::function<void(const std::string&)>& say);

// Why a response is no success: "HTTP 503 (...)", or the network's failure.
std::string reason_of(const WebResponse& response);
// Throws Error unless the response is a success or a redirect. `what`: the repository.
void require_success(const WebResponse& response, const std::string& what, const std::string& url,
                     bool has_token);

}  // namespace leq
