#include "tokenizer/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace leq {
namespace {

// Below U+0300 every character is its own NFC and composes with nothing before it.
bool is_surely_nfc(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= 0xcc; });
}

int combining_class(utf8proc_int32_t character) {
  return utf8proc_get_property(character)->combining_class;
}

// Canonical order: runs of combining marks sorted by class. (utf8proc's own pass is quadratic.)
void sort_marks(std::vector<utf8proc_int32_t>& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    begin = std::find_if(begin, text.end(), [](auto c) { return combining_class(c) != 0; });
    const auto end =
        std::find_if(begin, text.end(), [](auto c) { return combining_class(c) == 0; });
    std::stable_sort(begin, end,
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

void collapse_spaces(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' && (out.empty() || out.back() == ' ')) continue;
    out += text[i];
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
}

}  // namespace

std::string nfc(std::string_view text) {
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  std::array<utf8proc_int32_t, 8> parts;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text.substr(i)), 1);
    const auto character = static_cast<utf8proc_int32_t>(decode_utf8(text.substr(i, length)));
    int last_boundary = 0;
    const auto count = utf8proc_decompose_char(character, parts.data(), parts.size(),
                                               UTF8PROC_DECOMPOSE, &last_boundary);
    require(count > 0 && static_cast<std::size_t>(count) <= parts.size(),
            "NFC: cannot decompose the character at byte ", i);
    characters.insert(characters.end(), parts.begin(), parts.begin() + count);
    i += length;
  }
  sort_marks(characters);
  const auto left =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  require(left >= 0, "NFC: cannot compose a text of ", text.size(), " bytes");
  std::string out;
  out.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < left; ++i) {
    append_utf8(out, static_cast<char32_t>(characters[static_cast<std::size_t>(i)]));
  }
  return out;
}

std::string_view normalize(std::span<const Normalizer> steps, std::string_view text, bool prepend,
                           std::string& buffer) {
  for (const Normalizer& step : steps) {
    std::string out;
    switch (step.kind) {
      case Normalizer::Kind::nfc:
        if (is_surely_nfc(text)) continue;
        out = nfc(text);
        break;
      case Normalizer::Kind::prepend:
        if (text.empty() || !prepend) continue;
        out.reserve(step.content.size() + text.size());
        out.append(step.content).append(text);
        break;
      case Normalizer::Kind::replace:
        if (step.pattern.empty() || text.find(step.pattern) == std::string_view::npos) continue;
        out = replace_all(text, step.pattern, step.content);
        break;
      case Normalizer::Kind::collapse_spaces:
        collapse_spaces(text, out);
        break;
    }
    buffer = std::move(out);
    text = buffer;
  }
  return text;
}

}  // namespace leq
