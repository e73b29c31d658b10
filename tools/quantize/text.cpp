#include "tools/quantize/text.h"

#include <cstdint>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::uint64_t kMaxTextBytes = 1ull << 30;

}  // namespace

std::string read_quantize_text(const std::string& path) {
  std::string text = read_text_file(path, kMaxTextBytes);
  require(!text.empty(), path, ": the text is empty");
  const auto bad = first_invalid_utf8(text);
  require(!bad, path, ": no valid UTF-8 at byte ", bad.value_or(0));
  return text;
}

}  // namespace leq
