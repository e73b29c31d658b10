#include "generate/grammar/token_trie.h"

#include <algorithm>
#include <limits>

#include "generate/grammar/matcher.h"

namespace leq {

TokenTrie::TokenTrie(const Tokenizer& tokenizer, std::size_t vocabulary) : bytes_(vocabulary) {
  constexpr std::size_t kLongest = std::numeric_limits<std::uint16_t>::max();
  for (std::size_t i = 0; i < std::min(vocabulary, tokenizer.size()); ++i) {
    const auto id = static_cast<Token>(i);
    std::string bytes = tokenizer.token_bytes(id);
    if (bytes.empty() || bytes.size() > kLongest) continue;
    bytes_[i] = std::move(bytes);
    tokens_.push_back(id);
  }
  std::ranges::sort(tokens_, [&](Token a, Token b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  nodes_.push_back({});
  std::vector<std::uint32_t> open = {0};  // the ancestors of the next node
  for (std::uint32_t t = 0; t < tokens_.size(); ++t) {
    const std::string& text = bytes(tokens_[t]);
    std::size_t common = 0;
    if (t > 0) {
      const std::string& before = bytes(tokens_[t - 1]);
      while (common < std::min(before.size(), text.size()) && before[common] == text[common]) {
        ++common;
      }
    }
    while (open.size() > common + 1) {
      nodes_[open.back()].end = static_cast<std::uint32_t>(nodes_.size());
      open.pop_back();
    }
    for (std::size_t i = common; i < text.size(); ++i) {
      open.push_back(static_cast<std::uint32_t>(nodes_.size()));
      used_bytes_.set(static_cast<std::uint8_t>(text[i]));
      nodes_.push_back({.byte = static_cast<std::uint8_t>(text[i]),
                        .depth = static_cast<std::uint16_t>(i + 1),
                        .first_token = t});
    }
    longest_ = std::max(longest_, static_cast<std::uint16_t>(text.size()));
  }
  for (const std::uint32_t node : open)
    nodes_[node].end = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({.end = static_cast<std::uint32_t>(nodes_.size()) + 1,
                    .first_token = static_cast<std::uint32_t>(tokens_.size())});
}

std::shared_ptr<const TokenTrie> make_token_trie(const Tokenizer& tokenizer,
                                                 std::size_t vocabulary) {
  return std::make_shared<const TokenTrie>(tokenizer, vocabulary);
}

}  // namespace leq
