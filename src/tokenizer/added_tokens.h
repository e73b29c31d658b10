// Finds added tokens in a text: leftmost, then longest, as Hugging Face's tokenizers do.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/spec.h"

namespace leq {

class AddedTokenMatcher {
 public:
  // `normalized` chooses the tokens that are matched in raw or in normalized text.
  AddedTokenMatcher(std::span<const AddedToken> tokens, bool normalized);

  // Cuts `text` into pieces: text between tokens (id kNoToken, never empty) and tokens. Special
  // tokens are plain text unless `parse_special`.
  template <class Sink>
  void cut(std::string_view text, bool parse_special, Sink&& sink) const {
    Cut next{text};
    while (find_next(next, parse_special)) {
      if (next.begin > next.done) sink(text.substr(next.done, next.begin - next.done), kNoToken);
      sink(text.substr(next.begin, next.end - next.begin), next.id);
      next.done = next.end;
    }
    if (next.done < text.size()) sink(text.substr(next.done), kNoToken);
  }

 private:
  // A trie; the children of a node are linked.
  struct Node {
    std::uint32_t child = 0;    // 0: none
    std::uint32_t sibling = 0;  // 0: none
    std::uint32_t token = kNone;
    char byte = 0;
  };
  struct Cut {
    std::string_view text;
    std::size_t done = 0;   // all before is already given out
    std::size_t begin = 0;  // the token found
    std::size_t end = 0;
    Token id = kNoToken;
    std::size_t search = 0;  // where to look next
  };
  static constexpr std::uint32_t kNone = 0xffffffffu;

  void add(const AddedToken& token, std::uint32_t index);
  std::uint32_t child(std::uint32_t node, char byte) const;
  bool find_next(Cut& next, bool parse_special) const;
  bool accept(const AddedToken& token, Cut& next, std::size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::vector<std::uint32_t> first_;  // [256] the root's children
};

}  // namespace leq
