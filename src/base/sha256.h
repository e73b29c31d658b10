// SHA-256 as lower-case hex, which identifies a data set or a calibration text.
#pragma once

#include <string>
#include <string_view>

namespace leq {

std::string sha256_hex(std::string_view bytes);

}  // namespace leq
