#include "eval/wikitext.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/text.h"

namespace leq {
namespace {

constexpr std::uint64_t kLargestFile = 4ull << 30;

// Characters that Python's str.isspace accepts.
bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  constexpr char32_t kOthers[] = {0x85, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000};
  return (c >= 0x2000 && c <= 0x200a) || std::ranges::find(kOthers, c) != std::end(kOthers);
}

bool is_blank(std::string_view row) {
  while (!row.empty()) {
    const std::size_t length = utf8_length(row);
    if (length == 0 || !is_space(decode_utf8(row))) return false;
    row.remove_prefix(length);
  }
  return true;
}

}  // namespace

std::string_view join_name(Join join) { return join == Join::hf ? "hf" : "none"; }

std::string join_rows(std::string_view raw) {
  std::string text;
  text.reserve(raw.size() * 2);
  for (std::size_t begin = 0; begin < raw.size();) {
    const std::size_t newline = raw.find('\n', begin);
    const std::size_t end = newline == std::string_view::npos ? raw.size() : newline + 1;
    const std::string_view row = raw.substr(begin, end - begin);
    if (begin > 0) text += "\n\n";
    if (!is_blank(row)) text += row;
    begin = end;
  }
  return text;
}

EvaluationText read_evaluation_text(const std::filesystem::path& path, Join join) {
  EvaluationText out;
  out.join = join;
  std::string raw = read_text_file(path, kLargestFile);
  require(!raw.empty(), path.string(), ": the file is empty; a text to measure is needed");
  if (const auto offset = first_invalid_utf8(raw)) {
    fail(path.string(), ": invalid UTF-8 at offset ", *offset, " (byte ",
         printable(raw.substr(*offset, 1)), "); convert the file to UTF-8");
  }
  out.dataset_hash = sha256_hex(raw);
  out.text = join == Join::hf ? join_rows(raw) : std::move(raw);
  out.text_sha256 = sha256_hex(out.text);
  return out;
}

}  // namespace leq
