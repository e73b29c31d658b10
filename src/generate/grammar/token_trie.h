// The bytes of a vocabulary's tokens as a prefix tree, with its nodes in depth-first order: a
// traversal is one pass over the list, and skipping a subtree is one step.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace leq {

class TokenTrie {
 public:
  struct Node {
    std::uint8_t byte = 0;
    std::uint16_t depth = 0;        // number of bytes from the root, which has depth 0
    std::uint32_t end = 0;          // the index after the last node of this subtree
    std::uint32_t first_token = 0;  // in tokens(); the next node's is the end
  };

  // Tokens without bytes are not in the tree, nor are tokens longer than 65,535
  // bytes.
  TokenTrie(const Tokenizer& tokenizer, std::size_t vocabulary);

  std::size_t vocabulary() const { return bytes_.size(); }
  const std::string& bytes(Token id) const { return bytes_[static_cast<std::size_t>(id)]; }
  const std::vector<Node>& nodes() const { return nodes_; }  // root first; a sentinel at the end
  const std::vector<Token>& tokens() const { return tokens_; }
  std::uint16_t longest() const { return longest_; }
  const std::bitset<256>& used_bytes() const { return used_bytes_; }  // bytes that occur in tokens

 private:
  std::vector<std::string> bytes_;  // indexed by token
  std::vector<Node> nodes_;
  std::vector<Token> tokens_;
  std::uint16_t longest_ = 0;
  std::bitset<256> used_bytes_;
};

}  // namespace leq
