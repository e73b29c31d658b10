#include "tokenizer/stream_decoder.h"

#include <utility>

#include "base/text.h"

namespace leq {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// Whether `text` (itself not well-formed) is the beginning of a character.
bool may_become_character(std::string_view text) {
  if (text.empty() || text.size() > 3) return false;
  // Tests whether continuation bytes complete `text`; only the second byte matters, so 3 suffice.
  for (const char second : {'\x80', '\x90', '\xa0'}) {
    std::string whole(text);
    if (whole.size() == 1) whole += second;
    while (whole.size() < 4) {
      if (utf8_length(whole) == whole.size()) return true;
      whole += '\x80';
    }
    if (utf8_length(whole) == whole.size()) return true;
  }
  return false;
}

// Length of the longest beginning of a character at the start of `text`, at least 1; one U+FFFD
// replaces it.
std::size_t broken_length(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && length < 3 && may_become_character(text.substr(0, length + 1))) {
    ++length;
  }
  return length;
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool at_text_start)
    : tokenizer_(&tokenizer), drop_space_(at_text_start && tokenizer.strips_leading_space()) {}

std::string StreamDecoder::push(Token id) {
  std::string bytes = tokenizer_->token_bytes(id);
  if (drop_space_ && !bytes.empty()) {
    if (bytes.front() == ' ') bytes.erase(0, 1);
    drop_space_ = false;
  }
  held_ += bytes;
  std::string out;
  std::size_t done = 0;
  while (done < held_.size()) {
    const std::string_view rest = std::string_view(held_).substr(done);
    const std::size_t length = utf8_length(rest);
    if (length == 0 && may_become_character(rest)) break;
    if (length > 0)
      out += rest.substr(0, length);
    else
      out += kReplacement;
    done += length > 0 ? length : broken_length(rest);
  }
  held_.erase(0, done);
  return out;
}

std::string StreamDecoder::finish() {
  const std::string rest = std::exchange(held_, {});
  return rest.empty() ? "" : std::string(kReplacement);
}

}  // namespace leq
