#include "hub/requests.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr int kAttempts = 5;
constexpr double kMaxWaitSeconds = 300;
constexpr double kTellSeconds = 2;  // shorter waits are not reported

std::string encoded(std::string_view text, bool keep_slashes) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (kPlain.find(c) != kPlain.npos || (keep_slashes && c == '/')) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

// What the hub's X-Error-Code means, by the code, or by the status if it sends none.
struct HubAnswer {
  std::string_view code;
  int status;
  std::string_view text;
};
constexpr std::array kAnswers = {
    HubAnswer{"GatedRepo", 0,
              "access must be granted first: open its page on the hub, accept the conditions, and "
              "set HF_TOKEN to a token of that account (or run `hf auth login`): "},
    HubAnswer{"RevisionNotFound", 0, "has no such revision"},
    HubAnswer{"EntryNotFound", 0, "has no such file"},
    HubAnswer{"RepoNotFound", 0,
              "the hub has no such repository, or it is private: check the name, and set HF_TOKEN "
              "if it is private"},
    HubAnswer{"", 401,
              "the hub has no such repository, or it is private: check the name, and set HF_TOKEN "
              "if it is private"},
    HubAnswer{"", 403, "the hub refuses access to it; set HF_TOKEN to a token that may read it"},
    HubAnswer{"", 404, "the hub has nothing of this name"},
    HubAnswer{"", 429, "the hub limits the number of requests; wait some minutes, or set HF_TOKEN"},
};

}  // namespace

std::string WebResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

std::string url_path(std::string_view path) { return encoded(path, true); }
std::string url_part(std::string_view part) { return encoded(part, false); }

double wanted_wait(const WebResponse& response, double fallback) {
  const auto seconds = parse_double(response.header("retry-after"));
  return seconds ? std::clamp(*seconds, 0.0, kMaxWaitSeconds) : fallback;
}

void wait_for_hub(double seconds, const std::string& why,
                  const std::function<void(const std::string&)>& say) {
  if (seconds >= kTellSeconds) say(why + ": trying again in " + fixed(seconds, 0) + " s");
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

WebResponse send_patiently(WebClient& client, const WebRequest& request,
                           const std::function<void(const std::string&)>& say) {
  double wait = kFirstWaitSeconds;
  for (int attempt = 1;; ++attempt, wait *= 2) {
    WebResponse response = client.send(request);
    const bool busy = response.status == 429 || response.status >= 500;
    if (!busy || attempt == kAttempts) return response;
    wait_for_hub(wanted_wait(response, wait), reason_of(response), say);
  }
}

std::string reason_of(const WebResponse& response) {
  if (!response.failure.empty()) return response.failure;
  const std::string words = response.header("x-error-message");
  return "HTTP " + std::to_string(response.status) + (words.empty() ? "" : ", " + printable(words));
}

void require_success(const WebResponse& response, const std::string& what, const std::string& url,
                     bool has_token) {
  require(response.failure.empty(), ErrorKind::io, what, ": ", url, ": ", response.failure,
          "; the same command continues a download");
  if (response.status >= 200 && response.status < 400) return;
  const std::string code = response.header("x-error-code");
  for (const HubAnswer& answer : kAnswers) {
    if (!(answer.code.empty() ? answer.status == response.status : answer.code == code)) continue;
    const bool about_token = response.status == 401 && has_token;
    const std::string endpoint = url.substr(0, url.find('/', url.find("//") + 2));
    const std::string page =
        answer.code == "GatedRepo" ? endpoint + '/' + what.substr(0, what.find_first_of(": ")) : "";
    fail(ErrorKind::io, what, ": ", answer.text, page, " (", reason_of(response),
         about_token ? "; a token was sent, and may be wrong or expired)" : ")");
  }
  fail(ErrorKind::io, what, ": ", url, ": ", reason_of(response));
}

}  // namespace leq
