#include "tokenizer/added_tokens.h"

#include <utf8proc.h>

#include "base/text.h"

namespace leq {
namespace {

// The regular expression class \w, by which word boundaries are defined.
bool is_word(char32_t c) {
  if (c == 0x200c || c == 0x200d) return true;  // joiners
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool is_space(char32_t c) {
  if ((c >= 0x09 && c <= 0x0d) || c == 0x85) return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

// The well-formed character at the end of `text`; empty if there is none.
std::string_view last_character(std::string_view text) {
  for (std::size_t size = 1; size <= 4 && size <= text.size(); ++size) {
    const std::string_view tail = text.substr(text.size() - size);
    if (utf8_length(tail) == size) return tail;
  }
  return {};
}

std::string_view first_character(std::string_view text) {
  return text.substr(0, utf8_length(text));
}

bool touches_word(std::string_view character) {
  return !character.empty() && is_word(decode_utf8(character));
}

bool touches_space(std::string_view character) {
  return !character.empty() && is_space(decode_utf8(character));
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::span<const AddedToken> tokens, bool normalized)
    : nodes_(1), first_(256, 0) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized) continue;
    add(token, static_cast<std::uint32_t>(tokens_.size()));
    tokens_.push_back(token);
  }
}

bool AddedTokenMatcher::has_special() const {
  return std::any_of(tokens_.begin(), tokens_.end(), [](const AddedToken& t) { return t.special; });
}

std::uint32_t AddedTokenMatcher::child(std::uint32_t node, char byte) const {
  if (node == 0) return first_[static_cast<unsigned char>(byte)];
  std::uint32_t at = nodes_[node].child;
  while (at != 0 && nodes_[at].byte != byte) at = nodes_[at].sibling;
  return at;
}

void AddedTokenMatcher::add(const AddedToken& token, std::uint32_t index) {
  std::uint32_t node = 0;
  for (const char byte : token.content) {
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({0, nodes_[node].child, kNone, byte});
      nodes_[node].child = next;
      if (node == 0) first_[static_cast<unsigned char>(byte)] = next;
    }
    node = next;
  }
  if (nodes_[node].token == kNone) nodes_[node].token = index;
}

// Extends the token by the white space it absorbs; false if it must be a single word but is not.
bool AddedTokenMatcher::accept(const AddedToken& token, Cut& next, std::size_t at) const {
  next.begin = at;
  next.end = at + token.content.size();
  next.id = token.id;
  const auto before = [&] { return last_character(next.text.substr(0, next.begin)); };
  const auto after = [&] { return first_character(next.text.substr(next.end)); };
  if (token.single_word && (touches_word(before()) || touches_word(after()))) return false;
  if (token.lstrip) {
    while (next.begin > next.done && touches_space(before())) next.begin -= before().size();
  }
  if (token.rstrip) {
    while (touches_space(after())) next.end += after().size();
  }
  return true;
}

bool AddedTokenMatcher::find_next(Cut& next, const SpecialScope& scope) const {
  if (tokens_.empty()) return false;
  const std::string_view text = next.text;
  std::size_t at = std::max(next.search, next.done);
  for (; at < text.size(); ++at) {
    std::uint32_t node = first_[static_cast<unsigned char>(text[at])];
    if (node == 0) continue;
    std::uint32_t longest = kNone;
    for (std::size_t end = at + 1; node != 0; ++end) {
      if (nodes_[node].token != kNone) longest = nodes_[node].token;
      if (end == text.size()) break;
      node = child(node, text[end]);
    }
    if (longest == kNone) continue;
    const AddedToken& token = tokens_[longest];
    next.search = at + token.content.size();
    const bool allowed = !token.special || scope.allows(at, next.search);
    if (allowed && accept(token, next, at)) return true;
    // A token that crosses the border of a range must not hide a token that begins within it.
    if (!allowed && scope.in_ranges()) next.search = at + 1;
    at = next.search - 1;
  }
  return false;
}

}  // namespace leq
