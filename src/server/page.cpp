#include "server/page.h"

#include <string>

#include "base/text.h"
#include "server/base64.h"
#include "server/page_texts.h"

namespace leq {
namespace {

// A CSP source that allows only this script or style, identified by its hash.
std::string allowed(std::string_view text) {
  const std::string hex = sha256_hex(text);
  std::string digest;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    digest += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return "'sha256-" + base64_of(digest) + "'";
}

}  // namespace

std::string_view page_html() {
  static const std::string kPage =
      replace_all(replace_all(page_frame_text(), "<style></style>",
                              "<style>" + std::string(page_style_text()) + "</style>"),
                  "<script></script>", "<script>" + std::string(page_script_text()) + "</script>");
  return kPage;
}

std::string_view page_policy() {
  static const std::string kPolicy =
      "default-src 'none'; script-src " + allowed(page_script_text()) + "; style-src " +
      allowed(page_style_text()) +
      "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
      "frame-ancestors 'none'";
  return kPolicy;
}

}  // namespace leq
