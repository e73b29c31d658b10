// Base64 encoding of bytes (RFC 4648, with padding).
#pragma once

#include <string>
#include <string_view>

namespace leq {

std::string base64_of(std::string_view bytes);

}  // namespace leq
